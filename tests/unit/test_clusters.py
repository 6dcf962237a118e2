"""From encodings to memberships: the pieces that clustering attacks share."""

from dataclasses import replace

import pytest
import torch
from views import clothes, released, stream

from harness.api import NotApplicable
from harness_plugins.attacks.carlini.cliques import Cliques, agreed, cliques
from harness_plugins.attacks.carlini.prototypes import fitted, settled, starts
from harness_plugins.clusters.assignment import Rules, flow, greedy
from harness_plugins.clusters.embedding import Embedder, nearest
from harness_plugins.clusters.labels import images_of_classes
from harness_plugins.clusters.membership import Membership, classes_of
from harness_plugins.clusters.published import Published
from harness_plugins.clusters.reading import reread
from harness_plugins.clusters.solving import solved
from harness_plugins.clusters.training import learn
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.mixing import draw_sources

pytestmark = pytest.mark.numeric

N, ROUNDS = 30, 12


def hidden_view(rounds=ROUNDS, **config):
    return released(
        InstaHide(InstaHideConfig(**{"k": 2, **config})),
        clothes(N),
        clothes(600, start=N),
        rounds=rounds,
    )


def true_membership(view, published):
    return Membership.told(view, published, weights=True)


def test_the_law_is_seen_on_public_images():
    inside = Published.of(hidden_view())
    assert (inside.privates, inside.images, inside.uses) == (2, 2, 2)
    assert inside.hidden
    assert inside.still
    cross = Published.of(hidden_view(k=4, scheme="cross"))
    assert (cross.privates, cross.images, cross.uses) == (2, 4, 2)
    assert not Published.of(hidden_view(augment="affine")).still
    plain = released(Mixup(MixupConfig(k=2)), clothes(N), clothes(600, start=N), rounds=3)
    assert not Published.of(plain).hidden


def test_one_round_is_not_applicable_and_says_why():
    with pytest.raises(NotApplicable, match="--rounds"):
        Published.of(hidden_view(rounds=1))


def test_labels_tell_how_many_images_each_class_has():
    view = hidden_view()
    true = clothes(N).labels.bincount(minlength=10)
    assert torch.equal(images_of_classes(view.labels.flatten(0, 1), N, 2), true)
    two_rounds = hidden_view(rounds=2).labels.flatten(0, 1)
    assert torch.equal(images_of_classes(two_rounds, N, 2), true)
    many = hidden_view(rounds=40, k=4).labels.flatten(0, 1)
    assert (images_of_classes(many, N, 4) - true).abs().max() <= 1


def test_cliques_find_groups_that_are_alike():
    groups = torch.eye(4).repeat_interleave(10, 0)
    noise = 0.05 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    found = cliques(groups + noise, 4, 8, 40, stream(use="seeds"))
    assert len(found) == 4
    named = groups.argmax(1)[found.members]
    assert bool((named == named[:, :1]).all())
    assert sorted(named[:, 0].tolist()) == [0, 1, 2, 3]


def test_the_same_clique_is_kept_once():
    one = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0], [4, 5, 6, 7]])
    found = agreed(one, 8, 5)
    assert len(found) == 2
    assert found.runs.tolist() == [2, 1]


def test_what_few_runs_agree_on_is_no_image():
    runs = torch.tensor([40, 30, 9, 2])
    found = Cliques(torch.arange(8).view(4, 2), runs).agreed_on(0.2)
    assert found.runs.tolist() == [40, 30, 9]
    assert found.members.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_number_of_images_is_told_or_found():
    view = hidden_view()
    published = Published.of(view)
    truth = true_membership(view, published)
    noise = torch.randn(N, 64, generator=torch.Generator().manual_seed(0))
    places = torch.nn.functional.normalize(truth.mixture.apply(noise))
    true = clothes(N).labels.bincount(minlength=10)
    _, told = starts(places, published, stream(use="seeds"), told=True)
    assert torch.equal(told.bincount(minlength=10), true)
    _, found = starts(places, published, stream(use="seeds"), told=False)
    assert (found.bincount(minlength=10) - true).abs().max() <= 1
    assert abs(len(found) - N) <= 2


def test_too_few_rows_give_the_cliques_that_there_are():
    assert len(cliques(torch.eye(3), 5, 50, 10, stream(use="seeds"))) <= 3


def contested():
    """Two rows and two images of one class, where both rows like the same image better."""
    scores = torch.tensor([[0.9, 0.8], [0.7, 0.1]])
    rules = Rules(torch.ones(2, 1, dtype=torch.bool), torch.zeros(2, dtype=torch.int64), 1, 1)
    return scores, rules


def test_a_flow_gives_each_image_its_rows_and_greed_does_not():
    scores, rules = contested()
    assert greedy(scores, rules).flatten().tolist() == [0, 0]
    assert flow(scores, rules, torch.zeros(2)).flatten().tolist() == [1, 0]


@pytest.mark.parametrize("assign", ["flow", "greedy"])
def test_every_class_of_a_label_gets_an_image(assign):
    scores = torch.tensor([[0.9, 0.8, 0.1]])
    rules = Rules(torch.tensor([[True, True]]), torch.tensor([0, 0, 1]), 2, 0)
    found = flow(scores, rules, torch.zeros(1)) if assign == "flow" else greedy(scores, rules)
    assert sorted(found.flatten().tolist()) == [0, 2]


def test_slots_stay_empty_where_clusters_are_missing():
    rules = Rules(torch.tensor([[True, True]]), torch.tensor([0]), 2, 0)
    assert flow(torch.ones(1, 1), rules, torch.zeros(1)).tolist() == [[0, -1]]
    assert greedy(torch.ones(1, 1), rules).tolist() == [[0, -1]]


def test_a_flow_over_noisy_likeness_beats_greed():
    view = hidden_view()
    published = Published.of(view)
    truth = true_membership(view, published)
    labels = clothes(N).labels
    noise = torch.randn(len(published), N, generator=torch.Generator().manual_seed(0))
    scores = (truth.dense() > 0).float() + 0.4 * noise
    rules = Rules(published.labels > 0, labels, 2, 2)
    right = {
        name: float((found.sort(1).values == truth.clusters.sort(1).values).all(1).float().mean())
        for name, found in (
            ("flow", flow(scores, rules, published.rounds_of)),
            ("greedy", greedy(scores, rules)),
        )
    }
    assert right["flow"] > right["greedy"] + 0.02


def test_prototypes_explain_places_that_are_mixtures():
    view = hidden_view()
    truth = true_membership(view, Published.of(view))
    places = torch.randn(N, 8, generator=torch.Generator().manual_seed(0))
    found = fitted(truth.mixture.apply(places), truth)
    assert torch.nn.functional.cosine_similarity(found, places).min() > 0.99


def test_weights_come_from_labels_and_one_class_is_left_open():
    labels = torch.tensor([[0.3, 0.7, 0], [0, 1.0, 0]])
    clusters, classes = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 1])
    found = Membership.by_labels(clusters, labels, classes)
    torch.testing.assert_close(found.weights, torch.tensor([[0.3, 0.7], [0.5, 0.5]]))
    assert found.sure.tolist() == [[True, True], [False, False]]


def test_classes_are_read_off_memberships_that_err():
    """Two images in three are of one class, and seven classes have none.

    In few rounds an image may never be seen without the usual class, which then fits as well.
    """
    classes = torch.tensor([0] * 20 + [1] * 7 + [2] * 3)
    sources = torch.cat([draw_sources(N, 4, stream(use="of", turn=t)) for t in range(160)])
    labels = torch.zeros(len(sources), 10).scatter_(1, classes[sources], 0.25)
    wrong = stream(use="wrong").uniform(*sources.shape) < 0.4
    err = torch.where(wrong, stream(use="others").integers(N, *sources.shape), sources)
    assert torch.equal(classes_of(sources, labels, N), classes)
    found = classes_of(err, labels, N)
    assert int(found.max()) < 3, "no image has a class that no label names"
    assert float((found == classes).float().mean()) > 0.9
    assert int(classes_of(err.clamp(max=N - 2), labels, N)[-1]) == 0, "unseen: the most usual"


def test_two_images_of_one_class_are_weighed_by_what_they_look_like():
    view = hidden_view()
    published = Published.of(view)
    truth, labels = true_membership(view, published), clothes(N).labels
    halves = Membership.by_labels(truth.clusters, published.labels, labels)
    images = clothes(N).images.flatten(1)
    open_ones = ~halves.sure.all(1)
    assert bool(open_ones.any())
    read = reread(published, images, labels, halves, members=False)
    before = (halves.weights - truth.weights)[open_ones].abs().mean()
    after = (read.weights - truth.weights)[open_ones].abs().mean()
    assert after < 0.3 * before


def test_wrong_memberships_are_mended_by_true_images():
    view = hidden_view()
    published = Published.of(view)
    truth, labels = true_membership(view, published), clothes(N).labels
    wrong = truth.clusters.clone()
    moved = stream(use="wrong").permutation(len(wrong))[:60]
    mates = torch.stack([(labels == name).nonzero()[0, 0] for name in labels])
    wrong[moved, 0] = mates[wrong[moved, 0]]
    images = clothes(N).images.flatten(1)
    begun = replace(truth, clusters=wrong)
    read = reread(published, images, labels, reread(published, images, labels, begun))
    assert float((wrong != truth.clusters).float().mean()) > 0.02
    own, true = (each.clusters.sort(1).values for each in (read, truth))
    assert float((own != true).float().mean()) < 0.005


def test_memberships_that_are_known_are_left_as_they_are():
    view = hidden_view()
    published = Published.of(view)
    truth, labels = true_membership(view, published), clothes(N).labels
    garbage = torch.randn(N, 784, generator=torch.Generator().manual_seed(0))
    read = reread(published, garbage, labels, truth, members=False)
    assert torch.equal(read.clusters, truth.clusters)


def test_an_assignment_without_choices_is_none():
    rules = Rules(torch.tensor([[False, True]]), torch.tensor([0]), 2, 0)
    assert flow(torch.ones(1, 1), rules, torch.zeros(1)).tolist() == [[-1, -1]]


def test_nothing_mixed_is_not_applicable():
    view = released(Noise(NoiseConfig()), clothes(N), clothes(600, start=N), rounds=3)
    with pytest.raises(NotApplicable, match="nothing is mixed"):
        Published.of(view)


def test_images_come_out_of_mixtures_with_known_signs():
    view = hidden_view()
    published = Published.of(view)
    truth = true_membership(view, published)
    images = clothes(N).images.flatten(1)
    mixed = truth.mixture.apply(images)
    found = solved(mixed.abs(), 12 * mixed.sign(), truth, 1)
    error = (found - images).square().sum() / images.square().sum()
    assert error < 1e-3


def test_one_class_leaves_weights_to_the_images():
    every = clothes(3000)
    own = every[every.labels == 0]
    view = released(InstaHide(InstaHideConfig(k=2)), own[:12], own[12:100], rounds=20)
    published = Published.of(view)
    truth = true_membership(view, published)
    places = torch.nn.functional.normalize(truth.mixture.apply(torch.eye(12)))
    begun = starts(places, published, stream(use="seeds"))
    found, classes = settled(places, published, begun, flow, 10, lambda _: None)
    assert found.n == 12
    assert not bool(found.sure.any())
    right = truth.dense() > 0
    named = torch.zeros_like(right).scatter_(1, found.clusters, value=True)
    overlap = named.float().T @ right.float()
    assert float(overlap.max(1).values.sum() / right.sum()) > 0.9
    order = overlap.argmax(1)
    images = own[:12].images.flatten(1)[order]
    read = reread(published, images, classes, found)
    true = truth.dense()[:, order].gather(1, read.clusters)
    assert (read.weights - true).abs().mean() < 0.02


def test_nearest_blocks_are_what_the_whole_matrix_says():
    places = torch.nn.functional.normalize(
        torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    )
    blocks = list(nearest(places, 3, block=16))
    assert [len(values) for values, _ in blocks] == [16, 16, 16, 2]
    whole = (places @ places.T).fill_diagonal_(-torch.inf).topk(3, dim=1)
    torch.testing.assert_close(torch.cat([v for v, _ in blocks]), whole.values)
    assert torch.equal(torch.cat([rows for _, rows in blocks]), whole.indices)


def test_a_little_training_tells_pairs_of_other_images_apart():
    view = hidden_view()
    torch.manual_seed(0)
    kept = learn(view, None, lambda *_: None, pair_steps=12, pair_batch=48)
    assert float(kept["exam"]) > 0.75
    published = Published.of(view)
    places = Embedder.restore(kept, view.shape).places(published.seen)
    truth = true_membership(view, published).dense() > 0
    same = (truth.float() @ truth.float().T) > 0
    scores = places @ places.T
    other = ~same
    same.fill_diagonal_(fill_value=False)
    assert scores[same].mean() > scores[other].mean() + scores[other].std()
