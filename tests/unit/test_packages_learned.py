"""What a server makes of packages: a model that needs neither the learner nor its package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from released import LAW, key_in, released

from harness import evaluate, load_model
from harness.api import Classifier, Collection, IntegrityError, UsageError
from harness.api.plugins import Progress, silent
from harness.packages.learning import Done, Plan, joined, learn, open_packages
from harness.packages.model import DESCRIPTION, ONNX, TENSORS, predictions
from harness.packages.package import Package
from harness.packages.program import program_of
from harness.packages.releasing import Order
from harness.packages.samples import opened
from harness.packages.statement import Preprocessing
from harness.rng import public_stream
from harness.running.load import collection_of
from harness.running.run import Observer

DATA = {"public": "fashion-mini", "test": "fashion-mini"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clinics")


@pytest.fixture(scope="module")
def clinics(folder: Path) -> tuple[Path, Path]:
    """Two owners with images of their own, under one law."""
    paths = folder / "a.release", folder / "b.release"
    sizes = {"private_size": 800, "rounds": 2}
    said = released(key_in(folder, "a"), paths[0], part=(1, 2), **sizes)
    released(key_in(folder, "b"), paths[1], Order(like=said), part=(2, 2), **sizes)
    return paths


def learned(paths: tuple[Path, ...], out: Path, **asked: object) -> Done:
    return learn(paths, Plan(**{**DATA, **asked}), out, Observer())  # type: ignore[arg-type]


def test_a_union_holds_every_party_s_rows_in_every_round(clinics: tuple[Path, Path]) -> None:
    with open_packages(clinics) as packages:
        _compare(packages)


def _compare(packages: list[Package]) -> None:
    both = joined(packages)
    assert both.rows == 800
    for round_ in range(2):
        rows = torch.cat([images for images, _ in both.pieces(round_)])
        apart = [torch.cat([x for x, _ in each.pieces(round_)]) for each in packages]
        assert torch.equal(rows, torch.cat(apart))


def test_a_model_on_disk_reaches_what_an_evaluation_reports(
    clinics: tuple[Path, Path], folder: Path
) -> None:
    """Of the same law, number of images and rounds."""
    record = evaluate(
        defense=LAW,
        learner="classmeans",
        only="utility",
        private_size=800,
        public_size=5000,
        test_size=2000,
        rounds=2,
        threads=1,
        cache=folder / "cache",
    )
    assert record.utility is not None
    low, high = record.utility.interval
    done = learned(clinics, folder / "evaluated").described.learned
    assert done.accuracy is not None
    assert low <= done.accuracy <= high
    assert done.rows == 800


@pytest.mark.parametrize(
    "learner", ["classmeans", "ridge", "centroid-filter", "network", "network[batchnorm=avoid]"]
)
def test_what_is_read_back_answers_as_what_was_learned(
    clinics: tuple[Path, Path], folder: Path, learner: str
) -> None:
    """`program_of` compares them; here the file is read and asked for batches of any size."""
    out = folder / learner
    victim = "cnn[epochs=1]"
    done = learned(clinics, out, learner=learner, victim=victim)
    model = load_model(out)
    images = torch.randn(130, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    whole = model.logits(images)
    apart = torch.cat([model.logits(images[i : i + 7]) for i in range(0, 130, 7)])
    assert whole.shape == (130, 10)
    assert torch.allclose(whole, apart, rtol=1e-4, atol=1e-5)
    found = model.predict("fashion-mini")
    assert done.described.learned.accuracy is not None
    assert len({each.predicted for each in found}) > 5
    assert all(0 < each.probability <= 1 for each in found)


class Watching(Observer):
    """Writes down what was learned and what was found, and stops where it is told to."""

    def __init__(self, stop: str = "") -> None:
        self.learned: list[str] = []
        self.found: list[str] = []
        self.stop = stop

    @contextmanager
    def stage(self, name: str) -> Iterator[Progress]:
        if name == self.stop:
            raise KeyboardInterrupt
        if name.startswith("learn "):
            self.learned.append(name.removeprefix("learn "))
        yield silent

    def cached(self, name: str) -> None:
        self.found.append(name.removeprefix("learn "))


def files(model: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.iterdir()}


CLOSED = Plan("closed", **DATA)  # type: ignore[arg-type]


def test_a_learning_that_was_stopped_goes_on(
    clinics: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the model of one that nobody stopped, and without learning again what had ended."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "quiet"))
    quiet = Watching()
    done = learn(clinics, CLOSED, tmp_path / "undisturbed", quiet)
    assert (quiet.learned, quiet.found, done.stored) == (["classmeans", "ridge"], [], ())
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "stopped"))
    first, second = Watching("learn ridge"), Watching()
    with pytest.raises(KeyboardInterrupt):
        learn(clinics, CLOSED, tmp_path / "model", first)
    assert first.learned == ["classmeans"]
    assert not list(tmp_path.glob("*model*"))
    done = learn(clinics, CLOSED, tmp_path / "model", second)
    assert (second.learned, second.found) == (["ridge"], ["classmeans"])
    assert done.stored == ("classmeans",)
    assert files(tmp_path / "model") == files(tmp_path / "undisturbed")


def test_of_a_set_the_best_on_half_counts_on_the_other_half(
    clinics: tuple[Path, Path], tmp_path: Path
) -> None:
    told = learn(clinics, CLOSED, tmp_path / "model", Observer()).described.learned
    best = max(told.validation, key=lambda name: told.validation[name])
    assert told.learner.name == best
    assert sorted(told.validation) == ["classmeans", "ridge"]
    order = public_stream(0).stream(what="halves").permutation(2000)
    found = load_model(tmp_path / "model").predict("fashion-mini")
    right = [found[i].predicted == name for i, name in enumerate(_test_classes())]
    halves = [[right[i] for i in half] for half in order.view(2, 1000).tolist()]
    assert told.validation[best] == sum(halves[0]) / 1000
    assert told.accuracy == sum(halves[1]) / 1000


OTHERS: dict[str, dict[str, object]] = {
    "learner's options": {"learner": "ridge[components=32]"},
    "rounds": {"rounds": 1},
    "seed": {"seed": 1},
    "public images": {"public": None},
    "victim": {"victim": "mlp"},
}


def test_what_was_learned_otherwise_is_not_taken_for_this(
    clinics: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    learned(clinics, tmp_path / "first")
    again = learned(clinics, tmp_path / "again", test=None)
    assert again.stored == ("classmeans",), "the model is tried on images, not made of them"
    for name, asked in OTHERS.items():
        assert learned(clinics, tmp_path / name, **asked).stored == ()
    assert learned(clinics[:1], tmp_path / "one").stored == ()
    assert learned(clinics[::-1], tmp_path / "turned").stored == ()
    data = bytearray(clinics[0].read_bytes())
    data[-100] ^= 4
    (tmp_path / "changed.release").write_bytes(data)
    with pytest.raises(IntegrityError, match="does not have the hash"):
        learned((tmp_path / "changed.release", clinics[1]), tmp_path / "model")


def test_what_cannot_be_kept_is_not_learned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as long to find out."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "hidden.release"
    released(key_in(tmp_path), path, defense="instahide[k=2]", private_size=40)
    asked = Plan("encoded", "mlp[epochs=1,width=8]", public="fashion-mini")
    first, second = Watching(), Watching()
    for watching in (first, second):
        with pytest.raises(UsageError, match="'encoded' learned cannot be kept"):
            learn((path,), asked, tmp_path / "model", watching)
    assert (first.learned, second.learned, second.found) == (["encoded"], [], ["encoded"])


def test_files_are_predicted_as_the_dataset_they_are_of(
    clinics: tuple[Path, Path], folder: Path
) -> None:
    from harness_plugins.datasets.fashion_mini import harness_datasets

    out = folder / "files"
    learned(clinics, out)
    model = load_model(out)
    of_dataset = list(predictions(model, "fashion-mini", Observer()))[:40]
    assert harness_datasets()
    scans = folder / "scans"
    scans.mkdir()
    for number, image in enumerate(_test_images()[:40]):
        Image.fromarray(image).save(scans / f"{number:03}.png")
    of_files = model.predict(scans)
    assert [each.predicted for each in of_files] == [each.predicted for each in of_dataset]
    assert [each.probability for each in of_files] == pytest.approx(
        [each.probability for each in of_dataset], rel=1e-4
    )
    (scans / "broken.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"broken\.png cannot be read as an image"):
        model.predict(scans / "broken.png")
    with pytest.raises(UsageError, match="Unknown dataset 'nowhere'"):
        model.predict("nowhere")


def _collection() -> Collection:
    run = opened(Observer(), dataset="fashion-mini")
    return collection_of(run, run.cell.dataset)


def _test_images() -> np.ndarray:
    images: np.ndarray = _collection().test.images[:, 0].numpy()
    return images


def _test_classes() -> list[str]:
    held = _collection()
    return [held.classes[label] for label in held.test.labels.tolist()]


def test_onnx_gives_the_same_logits(clinics: tuple[Path, Path], folder: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    out = folder / "onnx"
    learned(clinics, out, onnx=True)
    again = learned(clinics, folder / "again", onnx=True)
    assert again.stored == ("classmeans",)
    assert files(folder / "again") == files(out)
    model = load_model(out)
    images = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    wanted = model.logits(model.described.preprocessing.scale.standardise(images))
    (found,) = reference.ReferenceEvaluator(str(out / ONNX)).run(None, {"images": images.numpy()})
    assert np.allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


HOSTILE: tuple[list[dict[str, object]], ...] = (
    [],
    [{"op": "getitem", "inputs": [[[1, 2], [3]], 0]}],
    [{"op": "getitem", "inputs": [{"step": 0}, 0]}],
    [{"op": "aten.max_pool2d_with_indices.default", "inputs": [{"step": 0}, [2, 2]]}],
    [{"op": "aten.mean.default", "inputs": [{"step": 0}]}],
    [{"op": "aten.view.default", "inputs": [{"step": 0}, [1, 784 * 64]]}],
    [{"op": "aten.expand.default", "inputs": [{"step": 0}, [10**30]]}],
    [{"op": "aten.abs.default", "inputs": [{"tensor": "\x1b[31m"}]}],
    [{"op": "\x1b[31m", "inputs": []}],
)
"""Steps that give no row of logits for each image, or nothing at all."""


def test_logits_that_are_not_finite_are_said_to_be(tmp_path: Path) -> None:
    class Diverged(Classifier):
        def logits(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :3] * float("nan")

    with pytest.raises(UsageError, match="logits that are not finite"):
        program_of(Diverged(), (1, 4, 4), "diverged")


def test_a_model_that_was_changed_is_refused(clinics: tuple[Path, Path], folder: Path) -> None:
    out = folder / "changed"
    learned(clinics, out)
    path = out / DESCRIPTION
    text = path.read_text()
    values = json.loads(text)
    values["steps"][0]["op"] = "aten.rand.default"
    path.write_text(json.dumps(values))
    with pytest.raises(IntegrityError, match=r"aten\.rand\.default"):
        load_model(out).logits(torch.zeros(1, 1, 28, 28))
    values = json.loads(text)
    values["steps"][-1]["inputs"][0] = {"step": 99}
    path.write_text(json.dumps(values))
    with pytest.raises(IntegrityError, match="cannot be followed"):
        load_model(out).logits(torch.zeros(1, 1, 28, 28))
    for steps in HOSTILE:
        path.write_text(json.dumps({**json.loads(text), "steps": steps}))
        with pytest.raises(IntegrityError, match=r"cannot be followed|may have") as refused:
            load_model(out).logits(torch.zeros(1, 1, 28, 28))
        assert str(refused.value).isprintable()
    steps = json.loads(text)["steps"]
    infinite = [*steps, {"op": "aten.div.Tensor", "inputs": [{"step": len(steps)}, 0.0]}]
    path.write_text(json.dumps({**json.loads(text), "steps": infinite}))
    with pytest.raises(IntegrityError, match="no finite numbers for fashion-mini test 0"):
        load_model(out).predict("fashion-mini")
    path.write_text(text.replace('"classes": [', '"classes": ["Bag", '))
    with pytest.raises(UsageError, match="has a name twice"):
        load_model(out)
    path.write_text(text.replace('"schema": 1', '"schema": 9'))
    with pytest.raises(UsageError, match="schema"):
        load_model(out)
    path.write_text(text)
    data = bytearray((out / TENSORS).read_bytes())
    data[-1] ^= 1
    (out / TENSORS).write_bytes(data)
    with pytest.raises(IntegrityError, match="does not have the hash"):
        load_model(out)


MISFITS = {
    "tau": ("singmix[tau=1e-3,noise=gaussian,radius=40]", "tau=0.001"),
    "noise": (LAW.replace("gaussian", "sphere"), "noise=sphere"),
    "radius": (LAW.replace("40", "80"), "radius=80.0"),
    "law": ("mixup", "its law is mixup"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_named(clinics: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    law, fault = MISFITS[name]
    released(key_in(tmp_path), tmp_path / "c.release", defense=law, rounds=2)
    with pytest.raises(UsageError, match=rf"c\.release does not fit .*a\.release.*{fault}"):
        learned((clinics[0], tmp_path / "c.release"), tmp_path / "model")
    assert not list(tmp_path.glob("*model*"))


def test_rounds_have_to_be_as_many_or_named(clinics: tuple[Path, Path], tmp_path: Path) -> None:
    released(key_in(tmp_path), tmp_path / "c.release", rounds=1)
    paths = clinics[0], tmp_path / "c.release"
    with pytest.raises(UsageError, match="--rounds 1 takes the first"):
        learned(paths, tmp_path / "model")
    assert learned(paths, tmp_path / "model", rounds=1).described.learned.rounds == 1
    with pytest.raises(UsageError, match="named twice"):
        learned((clinics[0], clinics[0]), tmp_path / "twice")


def test_parties_may_have_measured_for_themselves(
    clinics: tuple[Path, Path], tmp_path: Path
) -> None:
    law = "singmix[tau=1e-1,noise=gaussian]"
    paths = tuple(tmp_path / f"{part}.release" for part in (1, 2))
    for part, path in enumerate(paths, 1):
        released(key_in(tmp_path, str(part)), path, defense=law, part=(part, 2), private_size=300)
    with open_packages(paths) as packages:
        both = joined(packages)
    radii = sorted(float(p.said.law.config["radius"] or 0) for p in both.packages)
    assert radii[0] < float(both.law.config["radius"] or 0) < radii[1]
    assert "parties differ in radius" in both.notes[0]


def pictures(folder: Path, classes: dict[str, int]) -> None:
    """Grey squares of a class's brightness, and noise."""
    for name, level in classes.items():
        rng = np.random.default_rng(level)
        for number in range(12):
            (folder / name).mkdir(parents=True, exist_ok=True)
            image = np.clip(rng.normal(level, 20, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(image).save(folder / name / f"{number}.png")


def test_classes_are_merged_by_name(tmp_path: Path) -> None:
    pictures(tmp_path / "one", {"dark": 40, "light": 220})
    pictures(tmp_path / "two", {"light": 220, "middle": 128})
    law = "noise[kind=gaussian,scale=0.05,alpha=0.01]"
    dataset = "folder[path={},size=8]"
    said = released(
        key_in(tmp_path, "a"),
        tmp_path / "a.release",
        dataset=dataset.format(tmp_path / "one"),
        defense=law,
        private_size=None,
    )
    paths = tmp_path / "a.release", tmp_path / "b.release"
    two = {"dataset": dataset.format(tmp_path / "two"), "private_size": None}
    released(key_in(tmp_path, "b"), paths[1], Order(like=said), **two)
    done = learned(paths, tmp_path / "model", public=None, test=two["dataset"])
    assert done.described.classes == ("dark", "light", "middle")
    assert done.described.learned.accuracy == 1.0
    found = load_model(tmp_path / "model").predict(tmp_path / "one" / "dark")
    assert {each.predicted for each in found} == {"dark"}


def test_what_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    """InstaHide's own inference encodes what it is asked about, anew each time."""
    path = tmp_path / "hidden.release"
    released(key_in(tmp_path), path, defense="instahide[k=2]", private_size=40)
    with pytest.raises(UsageError, match=r"'encoded' learned cannot be kept|random numbers"):
        learned((path,), tmp_path / "model", learner="encoded", victim="mlp[epochs=1,width=8]")
    with pytest.raises(UsageError, match="is many learners; --test chooses among them"):
        learned((path,), tmp_path / "model", learner="standard", test=None)
    with pytest.raises(UsageError, match=r"there are none.*--public names some"):
        learned((path,), tmp_path / "model", learner="ridge", public=None)
    with pytest.raises(UsageError, match="packages hold encodings"):
        learned((path,), tmp_path / "model", learner="noisymeans")
    assert not (tmp_path / "model").exists()


FORGED = {
    "option": ({"tau": -1.0}, "tau: Input should be greater than 0"),
    "unknown": ({"power": 2}, "unknown key 'power'"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_law_that_no_defense_has_is_refused(
    clinics: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    """Sealed as it should be, by somebody who made it up."""
    options, fault = FORGED[name]
    with Package.open(clinics[0]) as package:
        said = package.said
    law = said.law.model_copy(update={"config": {**said.law.config, **options}})
    forged = said.model_copy(update={"law": law})
    whole = clinics[0].read_bytes()
    path = tmp_path / "forged.release"
    path.write_bytes(forged.sealed(said.hashes).header() + whole[-said.size :])
    with pytest.raises(UsageError, match=fault):
        learned((path,), tmp_path / "model")


def test_images_of_no_known_size_are_refused(clinics: tuple[Path, Path]) -> None:
    with Package.open(clinics[0]) as package:
        steps = package.said.preprocessing.model_dump()
    for changed in ({"image": (1, 10**12, 1)}, {"image": (1, 2**14, 2**14)}, {"mean": (0.0, 1.0)}):
        with pytest.raises(ValidationError):
            Preprocessing.model_validate({**steps, **changed})
