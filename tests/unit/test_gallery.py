"""Galleries: the pixels shown, the order of columns, and files that repeat byte for byte."""

import numpy as np
import pytest
from PIL import Image

from harness.drawing.gallery import Column, choose_targets, panel

pytestmark = pytest.mark.core


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(size=(3, 1, 28, 28))


def draw(path, images, heading="", released=True):
    columns = [
        Column(title, image, image * 40 - 7 if released else None, image, score)
        for title, image, score in zip("abc", images, ("9.0 dB", "5.0 dB", "1.0 dB"), strict=True)
    ]
    panel(path, columns, heading)
    return picture(path)


def picture(path):
    with Image.open(path) as image:
        return image.convert("RGB")


def test_the_same_input_gives_the_same_bytes(tmp_path, images):
    draw(tmp_path / "one.png", images, heading="linear")
    draw(tmp_path / "two.png", images, heading="linear")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.png", "two.png"]


def test_a_readers_own_style_changes_nothing(tmp_path, images):
    import matplotlib

    draw(tmp_path / "plain.png", images)
    with matplotlib.rc_context({"font.size": 30, "image.cmap": "jet", "savefig.dpi": 30}):
        draw(tmp_path / "styled.png", images)
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "styled.png").read_bytes()


def test_colours_arrive_as_they_are(tmp_path):
    colour = np.array([0.2, 0.6, 0.8]).reshape(3, 1, 1) * np.ones((3, 32, 32))
    panel(tmp_path / "colour.png", [Column("τ = 1", colour, None, colour)])
    shown = picture(tmp_path / "colour.png").getcolors(2**20)
    assert max(shown, key=lambda c: c[0] * (c[1] != (255, 255, 255)))[1] == (51, 153, 204)


def test_a_release_that_is_no_image_has_no_row(tmp_path, images):
    three_rows = draw(tmp_path / "three.png", images)
    two_rows = draw(tmp_path / "two.png", images, released=False)
    assert two_rows.width == three_rows.width
    assert two_rows.height < three_rows.height * 0.75


def test_targets_are_chosen_by_rank_and_by_lot():
    scores = [3.0, float("nan"), 9.0, 5.0]
    assert choose_targets(scores, "higher", [0]) == [
        ("leaks most", 2),
        ("median", 3),
        ("random", 0),
    ]
    assert choose_targets(scores, "lower", [])[0] == ("leaks most", 0)
    assert choose_targets([float("nan")], "higher", [0]) == [("random", 0)]
