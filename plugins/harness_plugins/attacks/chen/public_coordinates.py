"""Which of a list of public vectors are in an encoding (Chen et al., the first step)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_TURNS = 100
_STILL = 1e-5


def public_coordinates(seen: Tensor, public: Tensor) -> Tensor:
    """[m, s] unit vectors, along the weights of s public vectors in m encodings.

    `seen` [m, d] are absolute values of encodings, `public` [s, d] standard normal vectors, that
    may be mixed in. N = (1/d) sum_j x~_j^2 (p_j p_j' - I) has the expectation 2 w w', w the
    public weights: its top eigenvector is found by power iteration, without N. The sign makes
    the sum positive, as weights are.
    """
    squares = seen.square()
    level = squares.mean(1, keepdim=True)
    # What only chance brings has eigenvalues on both sides; this much more keeps all above 0.
    lift = level * (len(public) / public.shape[1]) ** 0.5
    found = (squares @ public.square().T / public.shape[1] - level).clamp(min=1e-6)
    for _ in range(_TURNS):
        before = found
        turned = (squares * (found @ public)) @ public.T / public.shape[1]
        found = torch.nn.functional.normalize(turned - (level - lift) * found)
        if float((found - before).abs().max()) < _STILL:
            break
    return found * torch.where(found.sum(1, keepdim=True) < 0, -1.0, 1.0)
