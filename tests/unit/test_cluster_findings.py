"""What the judge makes of claims on pairs, clusters and shares."""

import pytest
import torch
from views import stream

from harness.api import CellFailed
from harness.scoring.clusters import ClusterFacts, cluster_findings

ROUNDS, N = 10, 20


def facts(privates=2, publics=0):
    """Encodings of a known mixture: every image in `privates` rows of a round."""
    rng = stream(use="test")
    sources = []
    for turn in range(ROUNDS):
        order = rng.stream(turn=turn).permutation(N)
        columns = [order.roll(shift) for shift in range(privates)]
        columns += [torch.full((N,), N + 7)] * publics
        sources.append(torch.stack(columns, 1))
    weights = torch.full((ROUNDS * N, privates + publics), 0.25)
    weights[:, 0] = torch.linspace(0.3, 0.6, ROUNDS * N)
    sources = torch.cat(sources)
    classes = torch.arange(N) % 4
    return ClusterFacts(sources, weights, labels_of(sources, weights, classes), classes, N, 10, rng)


def labels_of(sources, weights, classes):
    """[rows, 4] soft labels; public images have none."""
    named = torch.nn.functional.one_hot(classes, 4).float()
    named = torch.cat([named, torch.zeros(10, 4)])
    return (named[sources] * weights.unsqueeze(2)).sum(1)


def held(known):
    """[rows, n] whether an image is in a row."""
    there = torch.zeros(len(known.sources), N + 10)
    return there.scatter_(1, known.sources, 1.0)[:, :N]


def test_places_that_tell_pairs_apart_have_an_auc_of_one():
    known = facts()
    found = cluster_findings({"places": held(known)}, known)
    for name in ("pair_auc", "pair_auc_within"):
        assert found[name].value == 1.0
        assert found[name].leaks
    assert found["pair_auc_within"].chance == 0.5


def test_what_labels_tell_is_no_finding():
    known = facts()
    places = torch.nn.functional.normalize(known.labels)
    found = cluster_findings({"places": places}, known)
    assert found["pair_auc"].value > 0.6
    assert found["pair_auc"].value == pytest.approx(found["pair_auc"].chance)
    assert not found["pair_auc"].leaks


def test_images_guessed_by_the_labels_alone_leak_nothing():
    known = facts()
    rng = known.stream.stream(use="guess")
    of_class = [(known.classes == name).nonzero().squeeze(1) for name in range(4)]
    named = known.classes[known.sources]
    guess = torch.stack(
        [
            torch.tensor([of_class[c][int(rng.integers(len(of_class[c]), 1))] for c in row])
            for row in named.tolist()
        ]
    )
    found = cluster_findings({"clusters": guess}, known)
    assert found["cluster_purity"].value > 0.15
    assert found["cluster_purity"].value == pytest.approx(found["cluster_purity"].chance, abs=0.04)


def test_places_at_random_are_at_chance_and_equal_ones_exactly_there():
    known = facts()
    random = torch.randn(len(known.sources), 5, generator=torch.Generator().manual_seed(0))
    found = cluster_findings({"places": random}, known)
    for name in ("pair_auc", "pair_auc_within"):
        assert found[name].value == pytest.approx(0.5, abs=0.05)
    alike = torch.ones(len(known.sources), 3)
    assert cluster_findings({"places": alike}, known)["pair_auc"].value == pytest.approx(0.5)


def test_the_auc_is_that_of_scikit_learns_formula():
    known = facts()
    places = held(known) + torch.randn(len(known.sources), N)
    scores, same = places @ places.T, (held(known) @ held(known).T) > 0
    each = []
    for row in range(len(places)):
        others = torch.arange(len(places)) != row  # a row is no other of itself
        mine, true = scores[row][others], same[row][others]
        above = (mine[true].view(-1, 1) > mine[~true]).double()
        each.append(above.mean())
    expected = float(torch.stack(each).mean())
    assert cluster_findings({"places": places}, known)["pair_auc"].value == pytest.approx(
        expected, abs=1e-6
    )


def test_products_that_are_those_of_the_weights_have_a_correlation_of_one():
    known = facts(privates=2, publics=1)
    true = held(known) * 0.25
    true[torch.arange(len(true)), known.sources[:, 0]] = known.weights[:, 0]
    found = cluster_findings({"places": true}, known)["gram_correlation"]
    assert found.value == pytest.approx(1, abs=1e-6)
    assert 0 < found.chance < 0.9
    wrong = cluster_findings({"places": true.roll(1, 0)}, known)["gram_correlation"]
    expected = torch.stack(
        [
            torch.corrcoef(torch.stack([row, other]))[0, 1]
            for row, other in zip(
                *(without_diagonal(p @ p.T) for p in (true.roll(1, 0), true)), strict=True
            )
        ]
    )
    assert wrong.value == pytest.approx(float(expected.mean()), abs=1e-4)
    flat = torch.ones(len(true), 1)
    assert "gram_correlation" not in cluster_findings({"places": flat}, known)


def without_diagonal(matrix):
    return matrix[~torch.eye(len(matrix), dtype=torch.bool)].view(len(matrix), -1)


def test_true_clusters_under_other_names_are_all_right():
    known = facts()
    renamed = torch.randperm(N)[known.sources]
    claims = {"clusters": renamed.flip(1), "shares": known.weights.flip(1)}
    found = cluster_findings(claims, known)
    for name in ("cluster_purity", "memberships_found", "encodings_assigned"):
        assert found[name].value == 1.0
        assert found[name].chance < 0.6
        assert found[name].leaks
    assert found["share_error"].value == pytest.approx(0, abs=1e-6)


def test_half_of_the_memberships_wrong_show_as_half():
    known = facts()
    clusters = known.sources.clone()
    clusters[:, 1] = -1
    found = cluster_findings({"clusters": clusters}, known)
    assert found["cluster_purity"].value == 1.0
    assert found["memberships_found"].value == 0.5
    assert found["encodings_assigned"].value == 0.0


def test_public_images_need_not_be_found():
    known = facts(privates=2, publics=2)
    found = cluster_findings({"clusters": known.sources[:, :2]}, known)
    assert found["encodings_assigned"].value == 1.0


def test_public_images_that_are_named_are_counted():
    known = facts(privates=2, publics=2)  # both are the eighth
    assert "publics_found" not in cluster_findings({"publics": known.sources % 10}, facts())
    for name, share in ((7, 1.0), (6, 0.0), (-1, 0.0)):
        claim = torch.full((len(known.sources), 2), name)
        found = cluster_findings({"publics": claim}, known)["publics_found"]
        assert (found.value, found.chance) == (share, 0.2)


def test_clusters_dealt_at_random_leak_nothing():
    known = facts()
    dealt = known.sources[stream(use="deal").permutation(len(known.sources))]
    found = cluster_findings({"clusters": dealt}, known)
    assert found["memberships_found"].value == pytest.approx(
        found["memberships_found"].chance, abs=0.06
    )


def test_weights_that_are_off_show_by_how_much():
    known = facts()
    claims = {"clusters": known.sources, "shares": known.weights + 0.05}
    assert cluster_findings(claims, known)["share_error"].value == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"places": torch.ones(3, 2)}, "200 vectors"),
        ({"places": torch.full((200, 2), torch.nan)}, "not all finite"),
        ({"clusters": torch.ones(200, 2)}, "whole numbers"),
        ({"clusters": torch.full((200, 2), -2)}, "between -1"),
        ({"clusters": torch.full((200, 2), 200)}, "between -1"),
        ({"publics": torch.full((200, 2), 10)}, "publics that are not between -1 and 9"),
        ({"shares": torch.ones(200, 2)}, "without the clusters"),
        (
            {"clusters": torch.zeros(200, 2, dtype=torch.int64), "shares": torch.ones(200, 1)},
            "shares",
        ),
    ],
)
def test_nonsense_fails_the_cell_and_says_why(claims, message):
    with pytest.raises(CellFailed, match=message):
        cluster_findings(claims, facts())
