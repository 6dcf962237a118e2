"""Fusion and denoising of clusters: each stage against its formula, then the whole attack."""

from dataclasses import replace

import pytest
import torch
from sign_views import PUBLIC, masked, prepared
from views import attack, clothes, released, stream, view_of

from harness.api import Channel, NotApplicable
from harness_plugins.attacks.luo import LuoConfig, harness_attacks
from harness_plugins.attacks.luo.attack import Grouped, Luo, fewer, largest
from harness_plugins.attacks.luo.classwise import by_class
from harness_plugins.attacks.luo.comparative import Comparative, balanced
from harness_plugins.attacks.luo.denoiser import Denoiser
from harness_plugins.attacks.luo.fusion import FEW, Fusion, Heap
from harness_plugins.attacks.luo.lessons import Law, lesson_of
from harness_plugins.attacks.luo.members import Members, leading_sources
from harness_plugins.attacks.luo.ranks import pair_auc
from harness_plugins.attacks.luo.school import heap_rows, objective
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.metrics.ssim import Ssim
from harness_plugins.structural_similarity import mean_ssim

(SPEC,) = harness_attacks()
TINY = {
    "similarity": "comparative",
    "pair_steps": 1,
    "pair_batch": 16,
    "compare_steps": 2,
    "compare_features": 4,
    "fusion_steps": 2,
    "fusion_base": 4,
    "groups": 1,
    "width": 4,
    "pair_images": 150,
}


def luo(view, **options):
    config = LuoConfig(**{**TINY, **options})
    return attack(Luo(config), prepared(view, SPEC, config))


def mixed(n=40, rounds=6, private=None):
    return released(Mixup(MixupConfig(k=2)), private or clothes(n), PUBLIC, rounds=rounds)


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def test_an_image_is_scaled_to_full_weight_and_the_rest_is_its_variance():
    labels = torch.tensor([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0]])
    members = Members.of(torch.ones(2, 1, 2, 2), labels, largest=0.65)
    assert members.leading.tolist() == [0, 1]
    torch.testing.assert_close(members.share, torch.tensor([0.6, 0.5]))  # two of one class: half
    torch.testing.assert_close(members.scaled[:, 0, 0, 0], torch.tensor([1 / 0.6, 2.0]))
    torch.testing.assert_close(members.variance, torch.tensor([(0.4 / 0.6) ** 2, 1.0]))


def test_the_leading_image_is_the_heaviest_of_the_leading_class():
    weights = torch.tensor([[0.4, 0.3, 0.3], [0.2, 0.5, 0.3]])
    sources = torch.tensor([[0, 1, 2], [0, 1, 7]])  # of 3 images; 7 is a public one
    classes = torch.tensor([0, 1, 1])
    labels = torch.tensor([1, 0])
    assert leading_sources(weights, sources, classes, labels).tolist() == [1, 0]


def test_a_pair_scores_the_weighed_cosines_of_its_maps():
    network = Comparative(1, 4).eval()
    with torch.no_grad():
        network.importance.copy_(numbers(8))
        one, other = numbers(2, 1, 16, 16)[:1], numbers(3, 1, 16, 16)[2:]
        maps = [
            [network.coarse(x[..., ::2, ::2]).relu(), network.centre(x[..., 4:12, 4:12]).relu()]
            for x in (one, other)
        ]
        cosines = torch.cat(
            [
                torch.nn.functional.cosine_similarity(a.flatten(2), b.flatten(2), dim=2)[0]
                for a, b in zip(*maps, strict=True)
            ]
        )
        expected = torch.nn.functional.softplus(network.importance) @ cosines - network.threshold
        found = network.odds(network(one), network(other))
    torch.testing.assert_close(found.squeeze(), expected)


def test_only_pairs_of_one_leading_class_teach():
    view = mixed(rounds=2)
    law = Law.of(view, bare=False)
    lesson = lesson_of(view, law, PUBLIC[:60], 3, stream(use="lesson"))
    rows = torch.arange(30)
    network, shown = Comparative(1, 4), lesson.members[rows].scaled
    whole = balanced(network, shown, lesson, rows)
    alone = lesson.members.leading[rows] == lesson.members.leading[0]
    changed = torch.where(alone.view(-1, 1, 1, 1), shown, shown.flip(0))
    kinds = lesson.members.leading.clone()
    kinds[rows[~alone]] = 100 + torch.arange(int((~alone).sum()))  # no two of them of one class
    apart = replace(lesson, members=replace(lesson.members, leading=kinds))
    part = balanced(network, shown, apart, rows)
    assert torch.equal(part, balanced(network, changed, apart, rows))
    assert not torch.equal(part, whole)


def test_a_lesson_of_the_classwise_likeness_is_of_one_class():
    view = mixed(rounds=2)
    law = Law.of(view, bare=False)
    source = iter([lesson_of(view, law, PUBLIC[:80], 3, stream(use="lesson"))])
    seen = 0
    for one, other, images in by_class(source, stream(use="draw")):
        labels = torch.cdist(images.flatten(1), PUBLIC.images[:80].flatten(1)).argmin(1)
        assert len(one) == len(other) == len(images) > 1
        assert len(PUBLIC.labels[:80][labels].unique()) == 1
        truth = torch.nn.functional.cosine_similarity(one.flatten(1), images.flatten(1))
        turned = torch.nn.functional.cosine_similarity(one.flatten(1), images.roll(1, 0).flatten(1))
        seen += int((truth > turned).sum() > len(images) / 2)
    assert seen >= 16  # of 20 lessons: plain mixtures look like their image


def test_pairs_of_one_class_are_ranked_and_others_left_out():
    places = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.7, 0.0], [5.0, 5.0]])
    owner, leading = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 0, 0, 0, 1])
    scores = {(0, 1): 0.9, (2, 3): 0.0}  # of one image; the others are .0, .7, .1, .63
    others = [0.0, 0.7, 0.1, 0.63]
    wins = sum((s > o) + (s == o) / 2 for s in scores.values() for o in others)
    assert float(pair_auc(places, owner, leading)) == pytest.approx(wins / 8)


def test_lessons_know_whose_every_member_is():
    view = masked(rounds=2, k=2)
    law = Law.of(view, bare=True)
    assert law.hidden
    lesson = lesson_of(view, law, PUBLIC[:60], 4, stream(use="lesson"))
    images = lesson.usable[:20]
    own = lesson.images[images].flatten(1)
    rows = lesson.draw(images, 3, stream(use="draw"))
    assert torch.equal(lesson.owner[rows], images.view(-1, 1).expand(-1, 3))
    likeness = torch.nn.functional.cosine_similarity(
        lesson.members.seen[rows[:, 0]].flatten(1), own
    )
    assert float(likeness.min()) > 0.5  # without their masks they look like the image
    strangers = lesson.strangers(images, 5, stream(use="others"))
    assert torch.equal(
        lesson.labels[lesson.owner[strangers]], lesson.labels[images][:, None].expand(-1, 5)
    )


def test_a_share_of_strangers_lands_in_the_clusters_that_are_learned_from():
    view = mixed(rounds=2)
    lesson = lesson_of(view, Law.of(view, bare=False), PUBLIC[:200], 3, stream(use="lesson"))
    images = lesson.usable
    wrong = {
        impure: float(
            (
                lesson.owner[heap_rows(lesson, images, 8, impure, stream(use="rows"))]
                != images[:, None]
            )
            .float()
            .mean()
        )
        for impure in (0.0, 0.3)
    }
    assert wrong[0.0] == 0
    assert 0.2 < wrong[0.3] < 0.33  # a few strangers are the image itself, of the same class


def test_the_loss_has_the_judge_s_ssim_in_it():
    images, truth = numbers(3, 1, 20, 24).sigmoid(), numbers(4, 1, 20, 24)[1:].sigmoid()
    judged = float(Ssim.score(None, images, truth).mean())
    wanted = 0.3 * float((images - truth).abs().mean()) - 0.7 * judged
    assert float(objective(images, truth)) == pytest.approx(wanted, abs=1e-5)
    torch.testing.assert_close(objective(truth, truth), torch.tensor(-0.7))


@pytest.mark.parametrize("most", [3, FEW + 2])
def test_fusion_asks_neither_for_order_nor_for_empty_places(most):
    network = Fusion((1, 20, 24), 6, 10, 4).eval()
    torch.nn.init.normal_(network.last.weight)
    seen, places, share = numbers(2, most, 1, 20, 24), numbers(2, most, 6), torch.ones(2, most) / 2
    guess, kind = numbers(2, 1, 20, 24), torch.eye(10)[:2]
    with torch.no_grad():
        whole = network(Heap(seen, places, share, kind), guess)
        turned = network(Heap(seen.flip(1), places.flip(1), share, kind), guess)
        more = (torch.cat([x, x[:, :1]], 1) for x in (seen, places))
        padded = network(Heap(*more, torch.cat([share, torch.zeros(2, 1)], 1), kind), guess)
        less = network(Heap(seen[:, 1:], places[:, 1:], share[:, 1:], kind), guess)
    torch.testing.assert_close(whole, turned, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(whole, padded, atol=1e-5, rtol=1e-4)
    assert float((whole - less).abs().max()) > 1e-3


def test_the_denoiser_begins_with_the_images_it_is_given():
    images = numbers(2, 3, 13, 15)
    network = Denoiser(3, 2, 8, 2)
    torch.testing.assert_close(network(images), images)
    torch.nn.init.normal_(network.last.weight)
    assert not torch.allclose(network(images), images)


def test_places_that_are_claimed_keep_their_inner_products():
    places = numbers(50, 4) @ numbers(4, 2000)
    claimed = fewer(places)
    assert claimed.shape[1] <= 256
    torch.testing.assert_close(claimed @ claimed.T, places @ places.T, rtol=1e-3, atol=1)


@pytest.mark.parametrize("similarity", ["embedding", "classwise", "comparative"])
def test_every_cluster_becomes_an_image(similarity):
    view = mixed()
    found = luo(view, similarity=similarity)
    assert found.images.shape == (40, 1, 28, 28)
    assert found.claims["clusters"].shape == (240, 1)
    assert int(found.claims["clusters"].max()) == 39
    assert len(found.claims["places"]) == 240
    assert found.diagnostics["clusters_found"] == 40


def test_told_clusters_are_the_true_ones():
    view = masked(30, rounds=5, k=2)
    found = luo(view, oracle="weights")
    weights, sources = view.weights.flatten(0, 1), view.sources.flatten(0, 1)
    labels = view.labels.flatten(0, 1)
    apart = labels.max(1).values < 0.66  # of two classes: the heavier image leads
    owner = sources.gather(1, weights.argmax(1, keepdim=True))[apart, 0]
    clusters = found.claims["clusters"][apart, 0]
    named = torch.stack([owner, clusters], 1).unique(dim=0)
    assert len(named) == len(owner.unique()) == len(clusters.unique())
    torch.testing.assert_close(found.claims["shares"][apart, 0], weights[apart].amax(1))


def test_one_class_only_and_images_that_no_encoding_shows():
    private = clothes(300)
    private = private[private.labels == 3][:12]
    found = luo(mixed(private=private, rounds=3))
    assert len(found.images) == 12
    two = mixed(private=private, rounds=2)
    few = {**two.channels, Channel.N_PRIVATE: 12}
    few[Channel.ENCODINGS], few[Channel.LABELS] = two.encodings[:, :3], two.labels[:, :3]
    partial = luo(view_of(few, private))
    assert len(partial.images) == 6
    assert partial.diagnostics["clusters_wanted"] == 12


def test_the_number_of_images_can_be_estimated():
    found = luo(mixed(), count="estimated")
    assert 1 < found.diagnostics["clusters_found"] <= 40
    assert len(found.images) == found.diagnostics["clusters_found"]


def test_of_more_clusters_than_images_the_largest_stay():
    grouped = Grouped(torch.tensor([2, 0, 1, 2, 0, -1, 2]), torch.tensor([7, 8, 9]))
    kept = largest(grouped, 2)
    assert kept.numbers.tolist() == [1, 0, -1, 1, 0, -1, 1]
    assert kept.kinds.tolist() == [7, 9]


def test_one_round_is_nothing_to_cluster():
    with pytest.raises(NotApplicable, match="one round"):
        luo(mixed(rounds=1))


def test_fusion_of_told_clusters_shows_more_than_a_class():
    view, truth = mixed(), clothes(40)  # told clusters are in the images' order
    found = luo(view, oracle="clusters", members=6, fusion_steps=20, pair_images=200)
    unit = view.scale.restore
    means = torch.stack([PUBLIC.images[PUBLIC.labels == kind].mean(0) for kind in range(10)])
    null = mean_ssim(unit(means[truth.labels]), unit(truth.images)).mean()
    assert mean_ssim(unit(found.images), unit(truth.images)).mean() > null + 0.1
    told = found.diagnostics
    assert told["public_ssim"] > told["public_ssim_of_class"] + 0.1  # not for its class's sake
