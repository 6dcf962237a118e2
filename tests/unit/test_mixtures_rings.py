"""Systems along the cycles of a permutation against the same systems written out densely."""

import pytest
import torch

from harness_plugins.mixtures.rings import Rings, Symmetric

LENGTHS = [(1,), (2,), (3,), (8,), (9,), (1, 1, 2, 5, 17), (64, 1, 33, 2, 2)]
WIDTH = 3


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def permuted(lengths):
    """The `following` [n] of a permutation with cycles of these lengths, in a random order."""
    names = torch.randperm(sum(lengths), generator=torch.Generator().manual_seed(1))
    following = torch.empty_like(names)
    for ring in names.split(list(lengths)):
        following[ring] = ring.roll(-1)
    return following


def rings_of(lengths):
    """The rings, and the place of the next image [n] in their order."""
    following = permuted(lengths)
    rings, order = Rings.of(following)
    place = order.argsort()
    return rings, place[following[order]]


def coupled(diagonal, coupling, after):
    """Dense [n, n]: the diagonal, and each image coupled with the one after it, both ways."""
    matrix, each = torch.diag(diagonal), torch.arange(len(diagonal))
    for rows, columns in ((each, after), (after, each)):
        matrix.index_put_((rows, columns), coupling, accumulate=True)
    return matrix


def definite(lengths):
    """Rings, a positive diagonal [n, WIDTH], couplings [n], and the dense matrix a column."""
    rings, after = rings_of(lengths)
    coupling = normal(len(after), seed=2)
    dominant = coupling.abs() + torch.zeros_like(coupling).index_add(0, after, coupling.abs())
    diagonal = dominant.view(-1, 1) + 0.1 + normal(len(after), WIDTH, seed=3).abs()
    return rings, diagonal, coupling, [coupled(d, coupling, after) for d in diagonal.T]


def test_an_order_keeps_each_ring_together_and_its_images_in_turn():
    following = permuted((5, 1, 3))
    rings, order = Rings.of(following)
    assert sorted(rings.lengths.tolist()) == [1, 3, 5]
    for ring in order.split(rings.lengths.tolist()):
        assert torch.equal(following[ring], ring.roll(-1))


@pytest.mark.parametrize("length", [1, 2, 3, 1000, 1025])
def test_a_ring_is_eliminated_in_as_many_steps_as_its_length_has_bits(length):
    rings, _ = Rings.of(permuted((length,)))
    assert len(rings.levels) == (length - 1).bit_length()
    gone = torch.cat([level.gone for level in rings.levels] + [rings.roots])
    assert torch.equal(gone.sort().values, torch.arange(length))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_symmetric_systems_are_solved_as_densely(lengths):
    rings, diagonal, coupling, matrices = definite(lengths)
    right = normal(*diagonal.shape, seed=4)
    pairs = zip(matrices, right.T, strict=True)
    expected = torch.stack([torch.linalg.solve(matrix, column) for matrix, column in pairs], 1)
    found = Symmetric(rings, diagonal, coupling).solve(right.clone())
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_inverse_diagonal_is_that_of_the_dense_inverse(lengths):
    rings, diagonal, coupling, matrices = definite(lengths)
    expected = torch.stack([torch.linalg.inv(matrix).diagonal() for matrix in matrices], 1)
    found = Symmetric(rings, diagonal, coupling).inverse_diagonal()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_coupling_may_differ_from_column_to_column():
    rings, after = rings_of((7, 4))
    coupling, diagonal = normal(11, WIDTH, seed=5), normal(11, WIDTH, seed=6).abs() + 6
    right = normal(11, WIDTH, seed=7)
    found = Symmetric(rings, diagonal, coupling).solve(right.clone())
    for column in range(WIDTH):
        matrix = coupled(diagonal[:, column], coupling[:, column], after)
        torch.testing.assert_close(matrix @ found[:, column], right[:, column])
