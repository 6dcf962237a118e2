"""What a pack hides, and the commitment to it.

The commitment is the SHA-256 of the file with the truth. The file holds 32 bytes of salt, so that
nobody can test a guess of the truth against its hash, and the digest of the pack's statement, so
that it opens one pack and no other: whoever changes an array or a word of a pack cannot make an
opening of it that has the hash committed to.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from harness.api import IntegrityError
from harness.challenge.pack import Checks, Description, Pack, flaw
from harness.store.artifacts import save_tensors
from harness.store.files import read_tensors, sha256_of_file

TRUTH = ("images", "classes", "weights", "sources")
"""Arrays of every truth; those of one defense alone have names that begin with `extra.`."""
SALT_BYTES = 32
CLOSE = 1e-4
"""How far float32 may carry a mixture from its sum made in another order."""


@dataclass(frozen=True)
class Truth:
    """What the owner keeps.

    `images` [n, c, h, w] in [0,1] and their hard labels `classes` [n] int64; of all encodings
    `weights` [rounds, n, k] and `sources` [rounds, n, k] int64, private images counted from 0 and
    public ones from n on; `extra` is whatever else the defense has to hide, [rounds, n, ...].
    """

    images: Tensor
    classes: Tensor
    weights: Tensor
    sources: Tensor
    extra: Mapping[str, Tensor]

    @property
    def own(self) -> Tensor:
        """[rounds·n, k]: which of the sources are private images."""
        return self.sources.flatten(0, 1) < len(self.images)


def write_truth(path: Path, truth: Truth, described: Description, salt: bytes) -> str:
    """Write an opening; gives the commitment."""
    tensors = {name: getattr(truth, name) for name in TRUTH}
    tensors |= {f"extra.{name}": tensor for name, tensor in truth.extra.items()}
    tensors["salt"] = torch.tensor(list(salt), dtype=torch.uint8)
    tensors["pack"] = torch.tensor(list(bytes.fromhex(described.digest)), dtype=torch.uint8)
    save_tensors(tensors, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def open_truth(path: Path, pack: Pack) -> Truth:
    """The truth of a pack, if that is what the file holds.

    IntegrityError where it does not open the commitment, or where it does and the pack is not
    what its owner committed to.
    """
    described = pack.described
    if not hmac.compare_digest(sha256_of_file(path, "truth"), described.commitment):
        raise IntegrityError(
            f"{path} does not open this pack: its hash is not the commitment in challenge.json. "
            "It is the truth of another pack, or one of the two was changed."
        )
    tensors = read_tensors(path, "truth")
    problem = _problem(tensors, pack)
    if problem:
        raise IntegrityError(f"{path} is what was committed to, and {problem}.")
    truth = truth_of(tensors)
    unmet = _unmet(truth, pack)
    if unmet:
        raise IntegrityError(f"{path} is what was committed to, but {unmet}.")
    return truth


def truth_of(tensors: Mapping[str, Tensor]) -> Truth:
    """The truth in arrays as an opening has them, whatever else is among them."""
    extra = {n.removeprefix("extra."): t for n, t in tensors.items() if n.startswith("extra.")}
    images, classes, weights, sources = (tensors[name] for name in TRUTH)
    return Truth(images, classes, weights, sources, extra)


def _problem(tensors: Mapping[str, Tensor], pack: Pack) -> str | None:
    """Why these tensors are no opening of this pack, or None."""
    said = pack.said
    wanted = {*TRUTH, "salt", "pack"}
    if not wanted <= set(tensors):
        return f"lacks {', '.join(sorted(wanted - set(tensors)))}"
    if bytes(tensors["pack"].flatten().tolist()).hex() != pack.described.digest:
        return "challenge.json does not say what it said then: the pack was changed"
    classes, sources = tensors["classes"], tensors["sources"]
    n, k = said.rows, sources.shape[-1] if sources.ndim else 0
    whole = (
        classes.shape == (n,)
        and sources.shape == (said.rounds, n, k)
        and {classes.dtype, sources.dtype} == {torch.int64}
        and {*classes.tolist()} <= {*range(len(said.classes))}
        and bool((sources >= 0).all())
    )
    if not whole:
        return "its classes or sources are not those of this pack"
    return flaw("images", tensors["images"], (n, *said.preprocessing.shape)) or flaw(
        "weights", tensors["weights"], (said.rounds, n, k)
    )


def _unmet(truth: Truth, pack: Pack) -> str | None:
    """Which check that the pack claims to pass it does not pass."""
    claimed, found = pack.described.checks, checks(truth, pack)
    if claimed.labels and not found.labels:
        return "the pack's labels are not those of its mixtures"
    if claimed.encodings != "no" and found.encodings == "no":
        return f"the pack's encodings do not have the {claimed.encodings} of its mixtures"
    return None


def checks(truth: Truth, pack: Pack) -> Checks:
    """What of a pack can be recomputed from its truth."""
    return Checks(labels=_labels_hold(truth, pack.labels), encodings=_held(truth, pack))


def _labels_hold(truth: Truth, labels: Tensor) -> bool:
    """Whether labels are those of the private images times their weights (InstaHide, alg. 2)."""
    own, sources = truth.own, truth.sources.flatten(0, 1)
    weights = truth.weights.flatten(0, 1).where(own, 0.0)
    wanted = one_hot(truth.classes, labels.shape[-1]).float()
    expected = (weights[..., None] * wanted[sources.where(own, 0)]).sum(1)
    return bool((expected - labels.flatten(0, 1)).abs().max() <= CLOSE)


def _held(truth: Truth, pack: Pack) -> Literal["values", "absolute values", "no"]:
    """Whether encodings are the mixtures of the private images, perhaps but for their signs."""
    steps = pack.said.preprocessing
    if pack.said.shape != steps.shape or not truth.own.all():
        return "no"
    standardised = steps.scale.standardise(truth.images)
    held: Literal["values", "absolute values", "no"] = "values"
    for weights, sources, encodings in zip(
        truth.weights, truth.sources, pack.encodings, strict=True
    ):
        mixed = torch.zeros_like(standardised)
        for w, s in zip(weights.unbind(1), sources.unbind(1), strict=True):
            mixed += w.view(-1, 1, 1, 1) * standardised[s]
        if held == "values" and (mixed - encodings).abs().max() > CLOSE:
            held = "absolute values"
        if (mixed.abs() - encodings.abs()).abs().max() > CLOSE:
            return "no"
    return held
