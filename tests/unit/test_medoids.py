"""Neighbour sets and k-medoids: planted clusters come back, told how many or not."""

import torch

from harness_plugins.attacks.luo import medoids
from harness_plugins.attacks.luo.medoids import clustered, neighbour_sets


def planted(images=8, each=20, noise=0.6, values=40):
    """Places about as many centres as images, in a mixed order, and whose each is."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.nn.functional.normalize(torch.randn(images, values, generator=generator))
    owner = torch.arange(images * each) % images
    spread = torch.randn(len(owner), values, generator=generator) / values**0.5
    places = torch.nn.functional.normalize(centres[owner] + noise * spread)
    order = torch.randperm(len(owner), generator=generator)
    return places[order], owner[order]


def purity(numbers, owner):
    counts = torch.zeros(int(numbers.max()) + 1, int(owner.max()) + 1)
    counts.index_put_((numbers, owner), torch.ones(len(owner)), accumulate=True)
    return float(counts.max(1).values.sum() / len(owner))


def test_neighbour_sets_begin_with_the_place_and_hold_its_nearest():
    places = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    assert neighbour_sets(places, 2).tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_blocks_change_nothing(monkeypatch):
    places, _ = planted()
    whole = neighbour_sets(places, 20)
    monkeypatch.setattr(medoids, "_BLOCK", 7)
    assert torch.equal(neighbour_sets(places, 20), whole)


def test_planted_clusters_come_back_one_to_one():
    places, owner = planted()
    found = clustered(places, 20, 8)
    assert len(found) == 8
    assert purity(found.numbers, owner) == 1.0
    assert len(owner[found.medoids].unique()) == 8


def test_neighbours_in_common_tell_more_than_scores_where_places_are_rough():
    places, owner = planted(images=10, each=40, noise=1.6, values=60)
    found = clustered(places, 40, 10)
    assert purity(found.numbers, owner) > 0.9


def test_the_number_of_images_is_estimated():
    for images in (3, 8):
        places, owner = planted(images=images)
        found = clustered(places, 20)
        assert len(found) == images
        assert purity(found.numbers, owner) == 1.0


def test_likeness_is_less_for_a_place_that_belongs_nowhere():
    places, _ = planted(noise=0.3)
    stranger = torch.nn.functional.normalize(torch.ones(1, places.shape[1]))
    found = clustered(torch.cat([places, stranger]), 20, 8)
    assert float(found.likeness[-1]) < float(found.likeness[:-1].min())


def test_fewer_places_than_clusters_are_a_cluster_each():
    places, _ = planted(images=2, each=2)
    found = clustered(places, 3, 9)
    assert len(found) == 4
    assert sorted(found.numbers.tolist()) == [0, 1, 2, 3]


def test_one_cluster_takes_all():
    places, _ = planted(images=3)
    assert clustered(places, 20, 1).numbers.unique().tolist() == [0]
