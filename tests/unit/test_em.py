"""Pairs by likelihood: who is in which row, what energies tell, and where it does not apply."""

from dataclasses import replace

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from views import BUDGET, clothes, quiet, released, with_prior

from harness.api import Channel, NotApplicable
from harness_plugins.attacks.em import EmConfig
from harness_plugins.attacks.em.attack import Em
from harness_plugins.attacks.em.rows import read_rows
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixtures.prior import GaussianPrior
from harness_plugins.mixtures.subspace import Subspace

N, ROUNDS = 20, 20
PRIVATE, PUBLIC = clothes(N), clothes(1500, start=N)
SECRET = (Channel.WEIGHTS, Channel.SOURCES)


def told(defense, rounds=ROUNDS):
    """The truth's sources and weights of all rows, and what an attacker sees without them."""
    view = with_prior(released(defense, PRIVATE, PUBLIC, rounds=rounds))
    left = {c: content for c, content in view.channels.items() if c not in SECRET}
    blind = replace(view, channels=left, granted=frozenset(left))
    return view.sources.flatten(0, 1), view.weights.flatten(0, 1), blind


def assigned(clusters, sources):
    """Share of rows whose two images are both named, clusters taken for images one to one."""
    overlap = torch.zeros(N, N)
    for one in clusters.T:
        for image in sources.T:
            overlap.index_put_((one, image), torch.ones(()), accumulate=True)
    _, images = linear_sum_assignment(-overlap.numpy())
    named = torch.from_numpy(images)[clusters]
    return float((named.unsqueeze(2) == sources.unsqueeze(1)).any(1).all(1).float().mean())


@pytest.mark.parametrize("defense", [Singmix(SingmixConfig(tau=1)), Mixup(MixupConfig(k=2))])
def test_rows_in_one_pile_find_their_pairs(defense):
    sources, weights, view = told(defense)
    found = Em(EmConfig(restarts=2, redraws=2)).reconstruct(view, {}, BUDGET, quiet)
    assert assigned(found.claims["clusters"], sources) > 0.9
    assert found.images.shape == PRIVATE.images.shape
    distances = torch.cdist(found.images.flatten(1), PRIVATE.images.flatten(1)).square()
    nearest = distances.min(0).values / PRIVATE.images.flatten(1).square().sum(1)
    assert float(nearest.median()) < 0.2  # 7 dB
    assert found.claims["shares"].shape == weights.shape


def test_it_does_not_matter_which_rows_are_of_one_round():
    sources, _, view = told(Singmix(SingmixConfig(tau=1)))
    order = torch.randperm(len(sources), generator=torch.Generator().manual_seed(0))
    mixed = {
        channel: view.channels[channel].flatten(0, 1)[order].unflatten(0, (ROUNDS, N))
        for channel in (Channel.ENCODINGS, Channel.LABELS)
    }
    shuffled = replace(view, channels={**view.channels, **mixed})
    found = Em(EmConfig(restarts=2, redraws=2)).reconstruct(shuffled, {}, BUDGET, quiet)
    assert assigned(found.claims["clusters"], sources[order]) > 0.9


def test_energies_tell_which_image_is_first_and_weights_within_a_class():
    _, weights, view = told(Singmix(SingmixConfig(tau=1e-2)))
    space = Subspace.between(view.shape, view.encodings[0], "auto")
    rows = read_rows(view, space, GaussianPrior.of(view), 100)
    assert rows.doubt < 0.02**2
    assert float((rows.weight - weights[:, 0]).abs()[~rows.sure].max()) < 0.06
    clear = rows.sure & ((weights[:, 0] - 0.5).abs() > 0.03)
    torch.testing.assert_close(rows.weight[clear], weights[clear, 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("defense", "reason"),
    [
        (InstaHide(InstaHideConfig(k=2)), "signs are hidden"),
        (Mixup(MixupConfig(k=4)), "mixes 4 images"),
        (InstaHide(InstaHideConfig(k=4, scheme="cross")), "2 of them private"),
    ],
)
def test_what_it_cannot_attack_it_says(defense, reason):
    _, _, view = told(defense, rounds=2)
    with pytest.raises(NotApplicable, match=reason):
        Em(EmConfig()).reconstruct(view, {}, BUDGET, quiet)
