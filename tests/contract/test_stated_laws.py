"""A stated law is held against the rows: a wrong one would make a wrong ceiling."""

import pytest
import torch

from harness.api import Config, Encoded, EncodingDefense, Law, Secrets
from harness.testing import defenses
from harness.testing.subject import Subject, Violation, find


class Noisy(EncodingDefense[Config]):
    """Normal noise of deviation 2 on every image, and a law that says something of it."""

    stated = Law("gaussian", 2.0, exposure=0.25)
    repeated = 1

    def encode(self, private, public, rng):
        n, values = len(private), private.images[0].numel()
        noise = rng.normal(n, values // self.repeated).repeat_interleave(self.repeated, 1)
        images = private.images + 2 * noise.view_as(private.images)
        secrets = Secrets(torch.ones(n, 1), torch.arange(n).view(-1, 1))
        labels = torch.nn.functional.one_hot(private.labels, 10).float()
        return Encoded(images, labels, secrets)

    def law(self, values, resolved):
        return self.stated


@pytest.fixture(scope="module")
def subject():
    return find("noise", "defenses", 60.0)


def asked(subject, monkeypatch, **changed):
    built = type("Stated", (Noisy,), changed)(Config())
    monkeypatch.setattr(Subject, "build", lambda _: built)
    return defenses.states_its_law(subject)


def test_the_law_that_fits_passes(subject, monkeypatch):
    assert "gaussian noise of the stated deviation" in asked(subject, monkeypatch)


def test_no_law_is_no_fault(subject, monkeypatch):
    assert "nothing is proven" in asked(subject, monkeypatch, stated=None)


WRONG = {
    "more noise than there is": ({"stated": Law("gaussian", 3.0)}, "times the energy"),
    "less of it": ({"stated": Law("gaussian", 1.5)}, "times the energy"),
    "no noise": ({"stated": Law("none")}, "states no noise of them"),
    "coloured noise": ({"repeated": 4}, "correlated"),
    "less exposure": ({"stated": Law("gaussian", 2.0, exposure=0.2)}, "stated exposure is 0.2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_law_that_does_not_fit_is_told(subject, monkeypatch, name):
    changed, said = WRONG[name]
    with pytest.raises(Violation, match=said):
        asked(subject, monkeypatch, **changed)
