"""A model on disk: a folder with its tensors, what is done with them, and what images go through.

`model.json` holds everything but the tensors, `model.safetensors` these. No code is stored and
none is run on loading.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from harness.api import Classifier, IntegrityError, Samples, UsageError
from harness.packages.package import fault_of
from harness.packages.program import Program, Step
from harness.packages.samples import Way, pictures, read_picture
from harness.packages.statement import Names, Part, Preprocessing, Text, Used
from harness.running.load import collection_of
from harness.running.run import Observer
from harness.store.artifacts import save_tensors
from harness.store.files import read_tensors, sha256_of_file
from harness.store.paths import disk_errors

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION, TENSORS, ONNX = "model.json", "model.safetensors", "model.onnx"
ASKED = 512
"""Images that are held at a time."""


class Learned(Part):
    """What a model was made of. `accuracy` is of the images of `test`, where some were given.

    Where a learner was chosen from a set, it is of the half of them that did not choose.
    """

    learner: Used
    packages: tuple[Text, ...]
    """Ids of releases."""
    rows: int
    rounds: int
    public: Text = ""
    test: Text = ""
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    validation: dict[Text, float] = Field({})
    """Of a set, by learner: the accuracy that one was chosen by, on the other half of `test`."""


class Described(Part):
    """`model.json`."""

    format: Literal["harness model"] = "harness model"
    schema_: Literal[1] = Field(1, alias="schema")
    version: Text
    classes: Names
    preprocessing: Preprocessing
    learned: Learned
    steps: tuple[Step, ...]
    tensors_sha256: Text


@dataclass(frozen=True)
class Prediction:
    """What is said of one image: the likeliest class, and the softmax of the logits there."""

    image: str
    predicted: str
    probability: float


class Model:
    """A classifier that was read from disk."""

    def __init__(self, described: Described, program: Program) -> None:
        self.described = described
        self._program = program

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of the logits."""
        return self.described.classes

    def logits(self, images: Tensor) -> Tensor:
        """[n, classes] of standardised images [n, *shape]."""
        if not len(images):
            return images.new_zeros(0, len(self.classes))
        found = self._program.logits(images)
        if tuple(found.shape) != (len(images), len(self.classes)):
            raise IntegrityError("the model does not give a logit for each of its classes")
        return found

    def predict(
        self, images: str | Path | Sequence[str | Path], observer: Observer | None = None
    ) -> list[Prediction]:
        """Of image files, folders of them, or one dataset by name (its test images)."""
        return list(predictions(self, images, observer or Observer()))


def load_model(folder: str | Path) -> Model:
    """A model that `harness learn` wrote.

    UsageError where it is none, IntegrityError where its tensors are others than it says.
    """
    folder = Path(folder)
    path = folder / DESCRIPTION
    with disk_errors(path):
        if not path.is_file():
            raise UsageError(f"{folder} is not a model: there is no {DESCRIPTION} in it.")
        text = path.read_bytes()
    try:
        described = Described.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{path} does not describe a model: {fault_of(error)}.") from None
    if sha256_of_file(folder / TENSORS, "file of the model") != described.tensors_sha256:
        raise IntegrityError(f"{folder / TENSORS} does not have the hash that {DESCRIPTION} gives.")
    tensors = read_tensors(folder / TENSORS, "file of the model")
    return Model(described, Program(described.steps, tensors))


def save_model(folder: Path, described: Described, program: Program) -> Described:
    """Write a model; gives what it says, with its tensors' hash."""
    save_tensors(program.tensors, folder / TENSORS)
    digest = sha256_of_file(folder / TENSORS, "file of the model")
    whole = described.model_copy(update={"tensors_sha256": digest})
    text = whole.model_dump_json(by_alias=True, indent=1) + "\n"
    (folder / DESCRIPTION).write_text(text, encoding="utf-8")
    (folder / TENSORS).chmod((folder / DESCRIPTION).stat().st_mode)  # safetensors makes it private
    return whole


def check_folder(folder: Path) -> None:
    """UsageError unless a new folder can be made there."""
    with disk_errors(folder):
        if os.path.lexists(folder):
            raise UsageError(f"{folder} is there already; nothing is written over a model.")
        if not folder.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {folder.absolute().parent}.")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside this one, which it becomes if all goes well; else nothing is left of it."""
    check_folder(folder)
    folder = folder.absolute()
    part = folder.with_name(f".{folder.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with disk_errors(folder):
            part.mkdir()
            yield part
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def predictions(
    model: Model, asked: str | Path | Sequence[str | Path], observer: Observer
) -> Iterator[Prediction]:
    """Image by image, in order; few are held at a time."""
    several = [asked] if isinstance(asked, str | Path) else list(asked)
    paths = [Path(each) for each in several]
    if len(paths) == 1 and not paths[0].exists():
        yield from _of_dataset(model, str(several[0]), observer)
        return
    files = [file for path in paths for file in pictures(path)]
    way = Way.of(model.described.preprocessing, observer)
    for start in range(0, len(files), ASKED):
        few = files[start : start + ASKED]
        yield from _said(model, way, _pictured(few, way.steps), [str(path) for path in few])


def _pictured(files: Sequence[Path], steps: Preprocessing) -> Samples:
    import numpy as np
    import torch

    images = np.stack([read_picture(path, steps.image) for path in files])
    return Samples(torch.from_numpy(images), torch.zeros(len(files), dtype=torch.int64))


def _of_dataset(model: Model, dataset: str, observer: Observer) -> Iterator[Prediction]:
    way = Way.of(model.described.preprocessing, observer, dataset=dataset)
    test = collection_of(way.run, way.run.cell.dataset).test
    for start in range(0, len(test), ASKED):
        few = test[start : start + ASKED]
        names = [f"{dataset} test {number}" for number in range(start, start + len(few))]
        yield from _said(model, way, few, names)


def _said(model: Model, way: Way, samples: Samples, names: Sequence[str]) -> Iterator[Prediction]:
    logits = model.logits(way.standardised(samples).images)
    finite = logits.isfinite().all(1).tolist()
    if not all(finite):
        name = names[finite.index(False)]
        raise IntegrityError(f"The model gives no finite numbers for {name}: it says nothing.")
    best = logits.double().softmax(1).max(1)
    found = zip(names, best.indices.tolist(), best.values.tolist(), strict=True)
    for name, at, probability in found:
        yield Prediction(name, model.classes[at], probability)


def write_onnx(path: Path, classifier: Classifier, steps: Preprocessing) -> None:
    """The same for ONNX's runtimes: `images` [batch, *shape], to `logits` [batch, classes].

    Images are float32 in [0,1], or features as their space gives them; standardising them is part
    of it.
    """
    import warnings

    import torch

    scale = steps.scale

    class Asked(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return classifier.logits(scale.standardise(images))

    example = torch.zeros(2, *steps.shape)
    with torch.no_grad(), disk_errors(path), warnings.catch_warnings():
        # Torch's exporter uses what torch itself calls old.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            Asked().eval(),
            (example,),
            path,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            external_data=False,
            verbose=False,
        )


def require_onnx() -> None:
    """UsageError where ONNX files cannot be written here."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise UsageError("--onnx needs two more packages: pip install 'encoding-harness[onnx]'.")
