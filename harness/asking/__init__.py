"""What may be asked of one evaluation: every option, stated once.

The model that validates requests and the command line are both made from `Options`. An option that
is added there is one of `harness evaluate`, of `harness matrix`, of TOML files, of the JSON schema
and of every record. `--help` must not wait for pydantic: this module imports the standard library
alone, and its annotations are no strings that would have to be evaluated.
"""

from typing import Annotated, Any, Literal, NamedTuple

PresetName = Literal["quick", "standard", "paper"]


class Option(NamedTuple):
    """What people read of an option, and the bounds of its value.

    `unset` says what holds where the option is left out and has no default value. `ge`, `gt` and
    `le` are bounds, called as pydantic calls them.
    """

    text: str
    unset: str = ""
    ge: int | None = None
    gt: int | None = None
    le: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The schema of the annotated type, with the bounds; below `| None` where there is one."""
        schema = handler(source)
        bounds = {"ge": self.ge, "gt": self.gt, "le": self.le}
        inner = schema.get("schema", schema)
        inner.update({name: bound for name, bound in bounds.items() if bound is not None})
        return schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The JSON schema of the annotated type, with the text as its description."""
        unset = f" If unset: {self.unset}." if self.unset else ""
        return {**handler(schema), "description": f"{self.text}{unset}"}


class Options:
    """The options of one evaluation, with their defaults; None where something else decides."""

    defense: Annotated[str, Option("Defense or stack, such as 'singmix[tau=1e-2]'.")] = "singmix"
    attack: Annotated[str, Option("Attack, such as 'linear[preset=paper]'.")] = "unet"
    dataset: Annotated[str, Option("Dataset to protect.")] = "fashion-mini"
    public: Annotated[
        str | None, Option("Dataset of the attacker's images.", unset="the one to protect")
    ] = None
    victim: Annotated[
        str, Option("Network that learners train on encodings, or the owner itself.")
    ] = "cnn"
    learner: Annotated[str, Option("Who learns from released encodings; 'standard' is many.")] = (
        "standard"
    )
    space: Annotated[str, Option("Where encodings live.")] = "pixels"
    threat_model: Annotated[str, Option("What the attacker holds.")] = "informed"
    release: Annotated[
        Literal["encodings", "features", "gradients", "statistics", "updates"] | None,
        Option("What leaves the owner.", unset="what the stack guards and the attack reads"),
    ] = None
    parties: Annotated[
        int, Option("Owners who each encode their own images with their own key.", ge=1, le=1000)
    ] = 1
    partition: Annotated[
        str,
        Option(
            "How private images are dealt out to several parties: 'iid', 'dirichlet[alpha=0.1]', "
            "'shards[classes=2]', or 'by-file', which keeps a subject's images together."
        ),
    ] = "iid"
    party: Annotated[
        int | None,
        Option("Evaluate one party's release alone, counted from 0.", unset="all together", ge=0),
    ] = None
    preset: Annotated[PresetName, Option("Sizes and budgets.")] = "quick"
    only: Annotated[
        Literal["privacy", "utility"] | None,
        Option("Run one half: what leaks, or what is learned.", unset="both"),
    ] = None
    repeats: Annotated[
        int,
        Option("How often is learned, each time from a new release, for a mean accuracy.", ge=1),
    ] = 1
    rounds: Annotated[int, Option("How often each image is encoded and released.", ge=1)] = 1
    private_size: Annotated[
        int | None, Option("Number of private images.", unset="by preset", ge=1)
    ] = None
    public_size: Annotated[
        int | None, Option("Number of public images.", unset="by preset", ge=1)
    ] = None
    test_size: Annotated[int | None, Option("Number of test images.", unset="by preset", ge=1)] = (
        None
    )
    targets: Annotated[
        int | None,
        Option("Number of images to judge.", unset="all private or 100 held-out ones", ge=1),
    ] = None
    targets_from: Annotated[
        Literal["private", "heldout"],
        Option(
            "Judge private images, or test images, which the victim was not trained on; those have "
            "features and no other release."
        ),
    ] = "private"
    judge_at: Annotated[
        Literal["image", "release"],
        Option(
            "Resolution that attacks return images at and are judged at: the images' own, or that "
            "of the encodings, which some defenses enlarge."
        ),
    ] = "image"
    batch_size: Annotated[
        int, Option("Number of images per released gradient, or per local step.", ge=1)
    ] = 1
    local_steps: Annotated[
        int, Option("Steps of SGD that a party takes before it sends its update.", ge=1, le=1000)
    ] = 1
    local_lr: Annotated[float, Option("Learning rate of those steps.", gt=0, le=1000)] = 0.01
    local_images: Annotated[
        int | None,
        Option("Images that a party takes them on, batch after batch.", unset="one batch", ge=1),
    ] = None
    victim_epochs: Annotated[
        int, Option("Epochs of training before gradients or updates leave the model.", ge=0)
    ] = 1
    bn_mode: Annotated[
        Literal["train", "eval"], Option("Mode of BatchNorm when gradients are taken.")
    ] = "train"
    twice: Annotated[
        bool | None,
        Option(
            "Run attacks at twice their effort too, to see whether they were stopped too early.",
            unset="those of a suite beyond the quick preset",
        ),
    ] = None
    ceiling: Annotated[
        bool | None,
        Option("Also say what no attack exceeds.", unset="beyond the quick preset"),
    ] = None
    metrics: Annotated[
        str | None,
        Option("Metrics to score: 'all', or names with commas between them.", unset="by preset"),
    ] = None
    seed: Annotated[int, Option("Seed of everything public.", ge=0)] = 0
    seconds: Annotated[
        float | None, Option("Time limit of each attack and each learner.", unset="by preset", gt=0)
    ] = None
    megabytes: Annotated[int, Option("Memory limit of each attack and each learner.", ge=1)] = 8192
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Option(
            "What networks are trained in; 'auto' takes bfloat16 where this machine multiplies "
            "such numbers and a plugin says that nothing is lost."
        ),
    ] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], Option("Where to compute.")] = "auto"
    threads: Annotated[
        int | None, Option("Number of CPU threads.", unset="all cores", ge=1, le=1024)
    ] = None
