"""`indistinguishability`: InstaHide's Kolmogorov-Smirnov tests."""

import pytest
import torch
from scipy.stats import ks_2samp
from views import attack, clothes, released, stream, view_of

from harness.api import CellFailed, Channel, Config
from harness_plugins.attacks.indistinguishability import IndistinguishabilityConfig
from harness_plugins.attacks.indistinguishability.comparison import (
    Indistinguishability,
    by_pair,
    rows_of_images,
)
from harness_plugins.attacks.indistinguishability.kolmogorov import (
    equal_sizes,
    largest_gap,
    one_against_others,
)
from harness_plugins.attacks.indistinguishability.statistics import NAMES, statistics_of
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

PUBLIC = clothes(30, 1000)


def compare(defense, *, rounds=12, images=10):
    view = released(defense, clothes(40), PUBLIC, rounds=rounds)
    needed = {c: view.channels[c] for c in (Channel.ENCODINGS, Channel.SOURCES)}
    blind = view_of(needed, clothes(40))
    return attack(Indistinguishability(IndistinguishabilityConfig(images=images)), blind)


@pytest.mark.parametrize("m", [8, 25, 60])
def test_p_values_are_those_of_scipys_exact_test(m):
    samples = stream(use="ks").normal(6, 2, m) + torch.linspace(0, 1, 6).view(6, 1, 1)
    samples[:, 1] *= 0.7
    found = equal_sizes(largest_gap(samples[:, 0], samples[:, 1]), m)
    known = [ks_2samp(a, b, method="exact").pvalue for a, b in samples.double().numpy()]
    assert found.tolist() == pytest.approx(known, rel=1e-9)


def test_ties_step_together():
    first, second = torch.tensor([0.0, 0, 0, 1]), torch.tensor([0.0, 0, 1, 1])
    assert int(largest_gap(first, second)) == 1
    assert int(largest_gap(first, first)) == 0


def test_a_sample_of_one_is_tested_as_scipy_does():
    values = (stream(use="one").normal(3, 9) * 4).round()  # with ties
    found = one_against_others(values)
    others = [torch.cat([values[:i], values[i + 1 :]]).flatten().numpy() for i in range(3)]
    known = [
        [ks_2samp([float(v)], others[i], method="exact").pvalue for v in values[i]]
        for i in range(3)
    ]
    assert torch.allclose(found, torch.tensor(known).double())


def test_the_statistics_are_the_papers():
    image = torch.tensor([[[[1.0, 2], [4, 8]]]])
    found = statistics_of(image, torch.tensor([0, 1, 2, 3]))[:, 0]
    deviation = image.std(correction=0)
    assert len(found) == len(NAMES)
    assert torch.allclose(found, torch.tensor([3.75, deviation, 3 + 6 + 1 + 4, 1, 2, 4, 8]))


def test_undefended_images_are_told_apart():
    found = compare(NoDefense(Config()))
    p_values = found.claims["p_values"]
    assert p_values.shape == (7, 45)
    # The images never change: wherever two differ at all, their samples do not overlap.
    assert float(p_values[:3].max()) < 1e-5
    assert found.diagnostics["rejected_mean"] == 1
    assert found.diagnostics["encodings_per_image"] == 12


def test_noise_does_not_hide_the_mean():
    found = compare(Noise(NoiseConfig(alpha=0.5)))
    assert found.diagnostics["rejected_mean"] > 0.8


def test_where_nothing_leaks_p_values_are_uniform():
    found = compare(Singmix(SingmixConfig(tau=1e-12, noise="gaussian")), rounds=16, images=40)
    p_values = found.claims["p_values"]
    assert p_values.shape == (7, 780)
    for level in (0.05, 0.25, 0.5):
        # Exact tests of discrete statistics reject at most as often as they say.
        assert level / 3 < float((p_values < level).float().mean()) < 1.2 * level


def test_one_encoding_at_a_time_sees_little_of_what_many_see():
    found = compare(Singmix(SingmixConfig(tau=1)), rounds=40).diagnostics
    assert found["rejected_mean"] > 0.5
    assert found["table4_p_mean"] > 0.3


def test_every_image_brings_as_many_encodings():
    own = torch.tensor([0] * 9 + [1] * 20 + [2] * 3 + [3] * 11).roll(5)
    rows = rows_of_images(own, 10, stream())
    assert rows.shape == (3, 9)
    assert sorted(own[rows[:, 0]].tolist()) == [0, 1, 3]
    assert bool((own[rows] == own[rows[:, :1]]).all())


def test_a_pair_is_tested_in_any_order():
    values = stream(use="pairs").normal(7, 2, 10)
    assert torch.equal(by_pair(values), by_pair(values.flip(1)))


def test_too_few_rounds_are_refused():
    with pytest.raises(CellFailed, match="--rounds 20"):
        compare(NoDefense(Config()), rounds=7)
