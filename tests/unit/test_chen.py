"""Chen et al.: who shares an image, from correlations of absolute values."""

from itertools import combinations

import pytest
import torch
from views import BUDGET, clothes, quiet, released, snr, stream

from harness.api import CellFailed, Channel, NotApplicable, Samples, Scale
from harness_plugins.attacks.chen import ChenConfig
from harness_plugins.attacks.chen.attack import Chen
from harness_plugins.attacks.chen.factors import leading, membership_scores, sparse
from harness_plugins.attacks.chen.floral import find_floral, floral_factor, subsets
from harness_plugins.attacks.chen.folding import folded, unfolded
from harness_plugins.attacks.chen.gram import chance, correlations, gram_of
from harness_plugins.attacks.chen.linegraph import line_graph_root
from harness_plugins.attacks.chen.pixel_signs import pixel_signs, share_right
from harness_plugins.attacks.chen.public_coordinates import public_coordinates
from harness_plugins.attacks.chen.regression import Regression
from harness_plugins.clusters.membership import Membership
from harness_plugins.clusters.published import Published
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.mixing import draw_sources, draw_weights, mix

pytestmark = pytest.mark.numeric

UNBOUNDED = Scale(mean=(0.0,), std=(1.0,), low=None, high=None)


def gaussian(n, d=5000, start=0):
    """`n` of the vectors that the theory is for, 10 classes that mean nothing."""
    rng = stream(use="vectors", start=start)
    return Samples(rng.normal(n, 1, 50, d // 50), rng.integers(10, n))


def chen(view, **options):
    """What the attack brings back; it needs nothing that others prepare."""
    plugin = Chen(ChenConfig(**options))
    return plugin.reconstruct(view, plugin.prepare(view, BUDGET, quiet), BUDGET, quiet)


def mixtures(n, rounds, k=2):
    """Memberships of `rounds` rounds, as InstaHide draws them."""
    rngs = [stream(use="mixtures", round=t) for t in range(rounds)]
    clusters = torch.cat([draw_sources(n, k, rng) for rng in rngs])
    weights = torch.cat([draw_weights(n, k, rng, max_weight=0.65) for rng in rngs])
    return Membership(clusters, weights, torch.ones_like(clusters, dtype=torch.bool), n)


def off_diagonal(matrix):
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)]


def matched(found, truth):
    """Whether two sets of columns are the same but for their order."""
    return sorted(map(tuple, found.T.int().tolist())) == sorted(map(tuple, truth.T.int().tolist()))


@pytest.mark.parametrize("r", [0.0, 0.3, 0.7, 0.95])
def test_correlations_of_absolute_values_are_those_of_a_simulation(r):
    u, e = stream(use="simulation").normal(2, 2_000_000)
    v = r * u + (1 - r * r) ** 0.5 * e
    simulated = torch.corrcoef(torch.stack([u.abs(), v.abs()]))[0, 1]
    assert float(folded(torch.tensor(r))) == pytest.approx(float(simulated), abs=3e-3)


def test_unfolding_is_the_inverse_of_folding():
    r = torch.linspace(0, 1, 1001, dtype=torch.float64)
    torch.testing.assert_close(unfolded(folded(r)), r, atol=1e-6, rtol=0)
    assert unfolded(torch.tensor([-0.3, 1.2])).tolist() == pytest.approx([0, 1])


def test_public_vectors_of_a_mixture_are_found_by_the_top_eigenvector():
    rows, pool, d = 100, 300, 20_000
    public, private = stream(use="public").normal(pool, d), stream(use="private").normal(rows, d)
    chosen = torch.stack([stream(row=row).permutation(pool)[:2] for row in range(rows)])
    total = torch.full((rows, 1), 0.6)
    weights = torch.tensor([0.4, 0.2]).expand(rows, 2)
    mixed = mix(public, chosen, weights) + 0.4 * private
    found = public_coordinates(mixed.abs(), public, 2, total)
    assert float((found.names == chosen).float().mean()) >= 0.99
    torch.testing.assert_close(found.weights.sum(1, keepdim=True), total)
    assert float((found.weights - weights).abs().mean()) < 0.02
    torch.testing.assert_close(found.mixed, mix(public, found.names, found.weights))
    again = found.read_again(mixed - 0.4 * private)
    assert torch.equal(again.names, chosen)
    torch.testing.assert_close(again.weights, weights)


def test_the_gram_matrix_of_the_weights_comes_back_from_absolute_values():
    member = mixtures(20, rounds=15)
    seen = (member.dense() @ gaussian(20).images.flatten(1)).abs()
    found = gram_of(correlations(seen), seen.square().mean(1).sqrt(), hidden=True)
    true = member.dense() @ member.dense().T
    pair = torch.stack([off_diagonal(found), off_diagonal(true)])
    assert float(torch.corrcoef(pair)[0, 1]) >= 0.98
    share = (off_diagonal(true) > 0) & (off_diagonal(found) > 0)
    assert float((off_diagonal(found) - off_diagonal(true))[share].mean().abs()) < 0.02


def test_chance_is_one_over_the_root_of_independent_values():
    assert chance(correlations(stream(use="chance").normal(300, 2500))) == pytest.approx(
        0.02, rel=0.1
    )


@pytest.mark.parametrize("n", [5, 6])
def test_the_root_of_the_line_graph_of_a_complete_graph(n):
    edges = torch.tensor(list(combinations(range(n), 2)))
    held = torch.zeros(len(edges), n).scatter_(1, edges, 1.0)
    shared = held @ held.T
    found = line_graph_root(shared > 0, shared > 1, n)
    assert matched(found, held)


def test_the_root_of_a_graph_of_random_pairs_with_parallel_edges():
    held = (mixtures(15, rounds=12).dense() > 0).float()
    shared = held @ held.T
    assert bool((shared.triu(1) > 1).any())
    assert matched(line_graph_root(shared > 0, shared > 1, 15), held)


def test_a_few_pairs_judged_wrongly_leave_the_root_as_it_is():
    held = (mixtures(15, rounds=20).dense() > 0).float()
    shared = held @ held.T
    drawn = stream(use="errors").uniform(len(held), len(held)) < 0.01
    noise = drawn.triu(1)
    joined = (shared > 0) ^ (noise | noise.T)
    found = line_graph_root(joined, shared > 1, 15).float()
    agree = (2 * found - 1).T @ (2 * held - 1) / len(held)
    assert float(agree.amax(0).min()) > 0.95


def test_floral_blocks_name_the_images_of_three():
    held = torch.cat([subsets(3), subsets(3).flip(1)[:6]])
    order = stream(use="floral").permutation(len(held))
    held = held[order]
    shared = (held @ held.T).long()
    assert len(find_floral(shared, 3, 0)) == 10
    assert matched(floral_factor(shared, 3, 5), held)


def test_without_all_subsets_there_is_no_floral_block():
    held = subsets(3)[:-1]
    assert find_floral((held @ held.T).long(), 3, 0) is None


@pytest.mark.parametrize("k", [2, 4])
def test_eigenvectors_turn_into_the_columns_of_the_weights(k):
    member = mixtures(20, rounds=30, k=k)
    true = member.dense()
    basis, values = leading(true @ true.T, 20, stream(use="eigenvectors"))
    torch.testing.assert_close((basis * values) @ basis.T, true @ true.T, atol=1e-3, rtol=0)
    found = sparse(basis, stream(use="rotation")).topk(k, dim=1).indices
    columns = torch.zeros_like(true).scatter_(1, found, 1.0)
    agree = (columns.T @ (true > 0).float()) / (true > 0).sum(0)
    assert float(agree.amax(0).mean()) > 0.95


@pytest.mark.parametrize(("k", "rounds"), [(1, 3), (2, 12), (3, 30)])
def test_regression_finds_values_up_to_a_sign(k, rounds):
    member, truth = mixtures(20, rounds, k), stream(use="truth").normal(20, 200)
    regression = Regression.of(member)
    images = regression.solved((member.dense() @ truth).abs(), 10, stream(use="starts"))
    signs = (images * truth).sum(0).sign() if k > 1 else (images * truth).sign()
    error = (images * signs - truth).norm(dim=0) / truth.norm(dim=0)
    assert float((error < 0.01).float().mean()) > 0.97


def test_signs_of_values_by_what_public_images_are_like():
    assert share_right(clothes(1000), 30, stream(use="exam")) > 0.99
    rows, signs = clothes(30).images.flatten(1), stream(use="signs").signs(784).float()
    known = clothes(900, 100).images.flatten(1)
    assert torch.equal(pixel_signs(rows * signs, known), signs)


def test_its_own_setting_gives_all_images_up_to_sign():
    private = gaussian(20)
    defense = InstaHide(InstaHideConfig(k=2))
    view = released(defense, private, gaussian(60, start=1), rounds=20, scale=UNBOUNDED)
    found = chen(view)
    truth = private.images.flatten(1).abs()
    errors = torch.cdist(found.images.flatten(1).abs(), truth) / truth.norm(dim=1)
    assert float((errors.amin(0) <= 0.1).float().mean()) >= 0.9
    assert found.diagnostics["whitened"] == 0
    assert members_right(found.claims, view) >= 0.99


def members_right(claims, view):
    """How often two encodings share clusters just when they share private sources."""
    clusters = claims["clusters"]
    sources = view.sources.flatten(0, 1)[:, : clusters.shape[1]]
    ours, true = one_hot(clusters), one_hot(sources)
    return float(((ours @ ours.T > 0) == (true @ true.T > 0)).float().mean())


def one_hot(clusters):
    """Which clusters an encoding is of; -1 is none."""
    return torch.nn.functional.one_hot(clusters + 1).sum(1)[:, 1:].float()


@pytest.mark.parametrize("factor", ["rotation", "line-graph"])
def test_both_factors_of_pairs_name_the_members(factor):
    defense = InstaHide(InstaHideConfig(k=2))
    view = released(defense, gaussian(15, 2500), gaussian(60, 2500, 1), rounds=12, scale=UNBOUNDED)
    found = chen(view, factor=factor, sweeps=0, starts=0)
    assert members_right(found.claims, view) >= 0.99


def test_real_images_need_whitening_and_come_back_with_their_signs():
    private = clothes(25)
    # From 30 rounds the same images come back 5 dB better or worse with the last digits alone.
    view = released(InstaHide(InstaHideConfig(k=2)), private, clothes(900, 100), rounds=60)
    raw, found = (chen(view, whiten=whiten, encodings=5000) for whiten in (False, True))
    nearest = torch.cdist(found.images.flatten(1), private.images.flatten(1)).argmin(1)
    assert float(snr(found.images, private.images[nearest]).median()) > 15
    wrong, wrong_raw = (1 - members_right(each.claims, view) for each in (found, raw))
    assert 1.5 * wrong < wrong_raw


def test_mixtures_without_masks_are_correlated_as_they_are():
    private = clothes(25)
    view = released(Mixup(MixupConfig(k=2)), private, clothes(900, 100), rounds=20)
    found = chen(view, encodings=5000)
    nearest = torch.cdist(found.images.flatten(1), private.images.flatten(1)).argmin(1)
    assert float(snr(found.images, private.images[nearest]).median()) > 15


def test_one_round_has_nothing_to_compare():
    view = released(InstaHide(InstaHideConfig(k=2)), clothes(20), clothes(100, 100))
    with pytest.raises(NotApplicable, match="--rounds"):
        chen(view, whiten=False)


def test_a_factor_that_is_not_for_this_many_images_says_so():
    view = released(InstaHide(InstaHideConfig(k=3)), clothes(20), clothes(100, 100), rounds=2)
    with pytest.raises(NotApplicable, match="two private images"):
        chen(view, factor="line-graph", whiten=False)


def test_one_class_alone_works():
    private, public = gaussian(15, 2500), gaussian(60, 2500, start=1)
    private = Samples(private.images, torch.zeros_like(private.labels))
    defense = InstaHide(InstaHideConfig(k=2))
    view = released(defense, private, public, rounds=16, scale=UNBOUNDED)
    found = chen(view)
    truth = private.images.flatten(1).abs()
    errors = torch.cdist(found.images.flatten(1).abs(), truth) / truth.norm(dim=1)
    assert float((errors.amin(0) <= 0.1).float().mean()) >= 0.8


def test_classes_that_no_image_has_take_none_away():
    private, public = gaussian(16, 2500), gaussian(60, 2500, start=1)
    private = Samples(private.images, torch.arange(16) % 2 * 5 + 2)
    view = released(InstaHide(InstaHideConfig(k=4)), private, public, rounds=30, scale=UNBOUNDED)
    found = chen(view, starts=0, sweeps=1)
    assert int(found.claims["clusters"].min()) == 0, "every encoding is of four images"


def test_where_nothing_is_alike_nothing_is_a_member_and_nothing_fails():
    scores = membership_scores(torch.zeros(6, 6), torch.zeros(6, 3))
    assert torch.equal(scores, torch.zeros(6, 3))


def test_a_way_that_finds_no_image_fails_and_says_so():
    view = released(InstaHide(InstaHideConfig(k=3)), clothes(8), clothes(100, 100), rounds=2)
    with pytest.raises(CellFailed, match="factor=floral finds no image") as caught:
        chen(view, factor="floral", whiten=False)
    assert not isinstance(caught.value, NotApplicable)


def test_the_truth_put_in_its_place_serves_better():
    view = released(
        InstaHide(InstaHideConfig(k=2)),
        gaussian(15, 1000),
        gaussian(60, 1000, 1),
        rounds=8,
        scale=UNBOUNDED,
    )
    found = chen(view, oracle="weights")
    truth = gaussian(15, 1000).images.abs()
    assert float((found.images.abs() - truth).norm() / truth.norm()) < 0.05
    assert ChenConfig(oracle="weights").demands() == {Channel.SOURCES, Channel.WEIGHTS}


def test_public_images_that_are_mixed_whole_are_found_and_give_the_signs():
    private, public = (Samples(*line(part)) for part in (gaussian(15), gaussian(120, start=1)))
    defense = InstaHide(InstaHideConfig(k=4, scheme="cross"))
    view = released(defense, private, public, rounds=16, scale=UNBOUNDED)
    found = chen(view, sweeps=2)
    named = found.claims["publics"].sort(1).values + 15
    assert float((named == view.sources.flatten(0, 1)[:, 2:].sort(1).values).float().mean()) > 0.97
    assert members_right(found.claims, view) >= 0.99
    truth = private.images.flatten(1)
    errors = torch.cdist(found.images.flatten(1), truth).amin(0) / truth.norm(dim=1)
    assert float((errors <= 0.1).float().mean()) >= 0.9, "not only up to signs"


def line(samples):
    """Vectors of one row: no images, of which patches would be cut."""
    return samples.images.flatten(2).unsqueeze(2), samples.labels


@pytest.mark.parametrize("k", [2, 4])
def test_patches_of_public_images_are_noise(k):
    scheme = "cross" if k > 2 else "inside"
    defense = InstaHide(InstaHideConfig(k=k, scheme=scheme))
    assert not Published.of(released(defense, clothes(20), clothes(500, 100), rounds=2)).whole


def test_nothing_is_prepared_where_values_do_not_depend_on_each_other():
    defense = InstaHide(InstaHideConfig(k=2))
    made = []
    for private, public in ((gaussian(20), gaussian(100, start=1)), (clothes(20), clothes(99, 99))):
        view = released(defense, private, public, rounds=2)
        made.append(bool(Chen(ChenConfig(encodings=100)).prepare(view, BUDGET, quiet)))
    assert made == [False, True]
