"""What an attack is handed: the files of its needs, and no private image in any of them."""

import pytest
import torch

import harness
from harness.api import Channel
from harness.rng import KeyedStream, board_key
from harness.running.attack import view
from harness.running.load import LoadStage
from harness.running.release import ReleaseStage
from harness.sandbox.jobs import Frame, Named, open_view
from harness.store import Store

ENTITLED = {"encodings", "weights", "sources", "n_private"}


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory):
    """By defense: the folder that `linear` gets of a recorded run, and that run's splits."""
    cache = tmp_path_factory.mktemp("cache")
    threads = torch.get_num_threads()
    made = {name: _handed_over(name, cache) for name in ("none", "singmix")}
    torch.set_num_threads(threads)
    return made


def _handed_over(defense, cache):
    record = harness.evaluate(
        cache=cache,
        defense=defense,
        attack="linear[steps=1]",
        victim="mlp",
        metrics="snr_db",
        only="privacy",
        private_size=12,
        public_size=40,
        test_size=20,
        threads=1,
    )
    assert record.status == "ok", record.error
    assert set(record.channels_used) == ENTITLED
    store, stored = Store(cache), record.artifacts
    splits = LoadStage.read(store.read("load", stored["load"].key))
    release = ReleaseStage.read(store.read("release", stored["release"].key))
    folder = cache / f"view-{defense}"
    folder.mkdir()
    channels = frozenset(map(Channel, record.channels_used))
    board = KeyedStream(board_key(record.request.seed))
    view(folder, _frame(record, splits, channels), channels, release, splits, board)
    return folder, splits


def _frame(record, splits, channels):
    return Frame(
        attack=Named(name=record.attack.name, config=record.attack.config),
        granted=tuple(sorted(channels)),
        threat_model=record.threat_model,
        mean=splits.scale.mean,
        std=splits.scale.std,
        shape=splits.shape,
        classes=len(splits.classes),
        n_private=len(splits.private),
        key="00",
        device="cpu",
        seconds=60,
        megabytes=4000,
        threads=1,
    )


def traces(samples, scale):
    """The middle rows of each image, as bytes in every form that they take in the engine."""
    forms = (samples.images, samples.unit().images, samples.standardised(scale).images)
    rows = (form[..., 8:20, :] for form in forms)
    return [image.contiguous().numpy().tobytes() for form in rows for image in form]


def files_with(folder, pieces):
    return {p.name for p in folder.iterdir() if any(piece in p.read_bytes() for piece in pieces)}


@pytest.mark.parametrize("defense", ["none", "singmix"])
def test_the_folder_holds_the_files_of_the_needs_and_the_frame(handed_over, defense):
    folder, _ = handed_over[defense]
    wanted = {"encodings.safetensors", "weights.safetensors", "sources.safetensors", "view.json"}
    assert {path.name for path in folder.iterdir()} == wanted


def test_the_attack_opens_what_it_was_granted_and_nothing_else(handed_over):
    folder, splits = handed_over["singmix"]
    frame = Frame.model_validate_json((folder / "view.json").read_text())
    opened = open_view(folder, frame)
    assert set(opened.channels) == ENTITLED
    assert opened.n_private == len(splits.private)
    assert opened.encodings.shape == (1, 12, 1, 28, 28)


def test_no_private_image_is_in_any_file_under_singmix(handed_over):
    folder, splits = handed_over["singmix"]
    assert files_with(folder, traces(splits.private, splits.scale)) == set()


def test_the_same_search_finds_undefended_images(handed_over):
    folder, splits = handed_over["none"]
    assert files_with(folder, traces(splits.private, splits.scale)) == {"encodings.safetensors"}


def test_neither_public_nor_test_images_come_unasked(handed_over):
    for folder, splits in handed_over.values():
        others = traces(splits.public, splits.scale) + traces(splits.test, splits.scale)
        assert files_with(folder, others) == set()
