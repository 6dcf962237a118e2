"""Guesses of somebody who knows labels and public images, and others who stand for the truth."""

import torch
from small_fashion import splits
from views import stream

from harness.api import Samples
from harness.api.plugins import as_they_are
from harness.scoring.codebook import centroids, codebook
from harness.scoring.matching import few_others, others_of_class


def test_centroids_find_clusters_that_are_there():
    rng = torch.Generator().manual_seed(0)
    centres = torch.tensor([0.0, 1.0, 5.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    images = (centres[:, None] + 0.01 * torch.randn(3, 30, 1, 2, 2, generator=rng)).flatten(0, 1)
    found = centroids(images, 3, stream())
    torch.testing.assert_close(
        found.mean((1, 2, 3)).sort().values, centres[:, 0, 0, 0], atol=0.01, rtol=0
    )
    torch.testing.assert_close(centroids(images, 1, stream())[0], images.mean(0))
    assert torch.equal(centroids(images, 100, stream()), images)


PILE = torch.arange(5)[None]


def test_whoever_makes_fewer_guesses_has_as_few_centroids():
    public = Samples(torch.rand(40, 1, 2, 2), torch.zeros(40, dtype=torch.int64))
    labels, fallback = torch.zeros(5, dtype=torch.int64), torch.full((5, 1, 2, 2), 9.0)
    few = codebook(public, fallback, labels, stream(), as_they_are, torch.arange(2)[None])
    assert (few[2:] == 9).all()
    assert not torch.equal(few[0], few[1])
    torch.testing.assert_close(few[:2], centroids(*clustered(public, 2)))


def clustered(public, count):
    """The arguments that a codebook of one class clusters with."""
    own = public.images[stream().stream(label=0).permutation(len(public))]
    return own, count, stream().stream(label=0, count=count)


def test_a_codebook_has_as_many_centroids_of_a_class_as_labels_say():
    public = Samples(torch.rand(40, 1, 2, 2), torch.arange(40) % 2)
    labels = torch.tensor([0, 1, 0, 0, 2])
    fallback = torch.full((5, 1, 2, 2), 9.0)
    book = codebook(public, fallback, labels, stream(), as_they_are, PILE)
    assert len({tuple(x.flatten().tolist()) for x in book}) == 5
    torch.testing.assert_close(book[1], public.images[public.labels == 1].mean(0))
    assert (book[4] == 9).all()  # no public image of its class
    again = codebook(public, fallback, labels, stream(), as_they_are, PILE)
    assert torch.equal(book, again)


def test_within_batches_a_codebook_counts_the_labels_of_each():
    public = Samples(torch.rand(40, 1, 2, 2), torch.arange(40) % 2)
    labels, groups = torch.tensor([0, 0, 0, 1]), torch.tensor([[0, 1], [2, 3]])
    book = codebook(public, torch.zeros(4, 1, 2, 2), labels, stream(), as_they_are, groups)
    torch.testing.assert_close(book[2], public.images[public.labels == 0].mean(0))
    assert not torch.equal(book[0], book[1])
    assert not torch.equal(book[0], book[2])


def test_others_are_test_images_of_the_same_classes_and_each_comes_once():
    truth = splits(private=24, public=32, test=400)
    others = others_of_class(truth, 24, stream())
    assert torch.equal(others.labels, truth.private.labels)
    known = {
        image.numpy().tobytes(): int(y)
        for image, y in zip(truth.test.unit().images, truth.test.labels, strict=True)
    }
    drawn = [image.numpy().tobytes() for image in others.images]
    assert [known[image] for image in drawn] == others.labels.tolist()
    assert len(set(drawn)) == 24
    assert few_others(truth, 24) == ()


def test_where_others_are_few_the_judge_says_so():
    truth = splits(private=24, public=200, test=10)
    notes = few_others(truth, 24)
    assert notes
    assert all("answers_to_others falls back on" in note for note in notes)
    alone = few_others(splits(private=24, public=200, test=0), 24)
    assert all(note.endswith("public images") for note in alone)


def test_where_the_test_pool_lacks_a_class_others_are_public():
    truth = splits(private=24, public=200, test=0)
    others = others_of_class(truth, 24, stream())
    known = {
        image.numpy().tobytes(): int(y)
        for image, y in zip(truth.public.unit().images, truth.public.labels, strict=True)
    }
    assert [known[image.numpy().tobytes()] for image in others.images] == others.labels.tolist()
