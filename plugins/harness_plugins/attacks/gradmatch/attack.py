"""Gradient matching: from released gradients to inputs, and from mixed inputs to images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, CellFailed, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.gradmatch import GradmatchConfig, labels
from harness_plugins.attacks.gradmatch.decoding import Decoder
from harness_plugins.attacks.gradmatch.distances import Observed
from harness_plugins.attacks.gradmatch.gradients import BatchedGradients, Moments
from harness_plugins.attacks.gradmatch.inputs import Inputs, expected, input_shape
from harness_plugins.attacks.gradmatch.matching import Matched, Matching
from harness_plugins.attacks.gradmatch.objective import Objective
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor


class GradientMatching(Attack[GradmatchConfig]):
    """One search for each released gradient and restart, many of them in one graph."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Images by batch; by name where batches are mixed and the mixture is known."""
        alive = _usable(view.gradients) & _telling(view)
        inputs = expected(view)
        matched = self._matching(view, inputs).run(alive.nonzero().flatten(), progress)
        return self._answer(view, matched, alive, inputs)

    def _matching(self, view: View, inputs: Inputs) -> Matching:
        size = int(view.protocol.get("batch_size", 1))
        return Matching(
            config=self.config,
            objective=self._objective(view, folded=inputs.folded),
            inputs=inputs,
            labels=self._labels(view, size),
            batches=len(next(iter(view.gradients.values()))),
            shape=(size, *input_shape(view)),
            classes=view.classes,
            stream=view.rng,
            device=view.device,
        )

    def _objective(self, view: View, *, folded: bool) -> Objective:
        watched = self.config.statistics != "none" and self.config.bn > 0
        train = view.protocol.get("bn_mode") == "train"
        batched = BatchedGradients(view.model, train=train, watched=watched)
        return Objective(
            gradients=batched,
            observed=Observed.of(view.gradients, adaptive=self.config.adaptive),
            distance=self.config.distance,
            tv=self.config.tv,
            bn=self.config.bn,
            moments=self._moments(view, batched),
            folded=folded,
        )

    def _moments(self, view: View, batched: BatchedGradients) -> Moments:
        """What each BatchNorm should see: of each batch, or as the model has it from training."""
        if self.config.statistics == "none" or not self.config.bn:
            return {}
        if not view.has(Channel.BN_STATISTICS):
            return batched.running
        known = view.bn_statistics
        layers = sorted({name.rpartition(".")[0] for name in known})
        return {layer: (known[f"{layer}.mean"], known[f"{layer}.var"]) for layer in layers}

    def _labels(self, view: View, size: int) -> Tensor | None:
        """[batches, b, classes], or None where they are to be found with the images."""
        if view.has(Channel.BATCH_LABELS):
            return view.batch_labels
        if self.config.labels == "joint" or _mixed(view):
            return None
        rule: labels.Rule = "distinct" if self.config.labels == "distinct" else "counted"
        public = view.public.images if view.has(Channel.PUBLIC) else None
        return labels.reconstruct(rule, view.gradients, view.model, public, view.classes, size)

    def _answer(
        self, view: View, matched: Matched, alive: Tensor, inputs: Inputs
    ) -> Reconstruction:
        found = matched.losses.isfinite()
        self._require_any(found, int(alive.sum()))
        claims = {} if view.has(Channel.BATCH_LABELS) else {"batch_labels": matched.labels}
        diagnostics = {
            "matching_loss": float(matched.losses[found].mean()),
            "restarts": float(self.config.restarts * int(alive.sum())),
            "diverged_restarts": float(matched.diverged),
            "zero_gradients": float((~_usable(view.gradients)).sum()),
        }
        if _mixed(view):
            images, targets = self._decode(view, matched, found, folded=inputs.folded)
            claims["inputs"] = matched.inputs
            return Reconstruction(images, targets, claims=claims, diagnostics=diagnostics)
        images, batches = _unmixed(view, matched.inputs, found)
        return Reconstruction(images, batches=batches, claims=claims, diagnostics=diagnostics)

    def _require_any(self, found: Tensor, batches: int) -> None:
        if not bool(found.any()):
            raise CellFailed(
                f"every search diverged: the loss was no number in all {self.config.restarts} "
                f"restarts of {batches} batches; try a lower lr or more restarts"
            )

    def _decode(
        self, view: View, matched: Matched, found: Tensor, *, folded: bool
    ) -> tuple[Tensor, Tensor]:
        """The images that are primary in a row that was found, and which they are."""
        sources = view.sources[found]
        mixture = Mixture.of(view.weights[found], sources, view.n_private)
        rows = fit_images(matched.inputs[found].flatten(0, 1), view.shape).flatten(1)
        decoder = Decoder(mixture, _public_mean(view).flatten(), self.config.decode_ridge)
        if folded:
            stream = view.rng.stream(use="decode")
            images = decoder.folded(rows, self.config.decode_steps, stream)
        else:
            images = decoder.signed(rows)
        primary = sorted(set(sources[..., 0].flatten().tolist()))
        targets = torch.tensor(primary, device=images.device)
        return view.scale.clamp(images[targets].view(-1, *view.shape)), targets


def _usable(gradients: Mapping[str, Tensor]) -> Tensor:
    """[batches]: which gradients say anything; CellFailed where none does."""
    finite = torch.stack([g.flatten(1).isfinite().all(1) for g in gradients.values()]).all(0)
    if not bool(finite.all()):
        raise CellFailed(
            f"{int((~finite).sum())} of {len(finite)} released gradients hold values that are no "
            "numbers: there is nothing to match"
        )
    some = torch.stack([g.flatten(1).ne(0).any(1) for g in gradients.values()]).any(0)
    if not bool(some.any()):
        raise CellFailed(
            f"all {len(some)} released gradients are zero: the model's loss does not depend on its "
            "weights (dead units, or a training that ended at a loss of zero), and nothing leaks"
        )
    return some


def _mixed(view: View) -> bool:
    """Whether inputs are known mixtures of several images."""
    known = {Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE} <= view.granted
    return known and view.weights.shape[-1] > 1


def _public_mean(view: View) -> Tensor:
    if view.has(Channel.PUBLIC):
        return view.public.images.mean(0)
    return torch.zeros(view.shape, device=view.device)


def _telling(view: View) -> Tensor:
    """[batches]: all of a known mixture, else those of the first round.

    Of the others nobody says which image is which, and one answer to each is all that counts.
    """
    count = len(next(iter(view.gradients.values())))
    rounds = 1 if _mixed(view) else int(view.protocol.get("rounds", 1))
    return torch.arange(count, device=view.device) < count // rounds


def _unmixed(view: View, inputs: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Images [m, *view.shape] and their batches."""
    batches = found.nonzero().flatten()
    images = inputs[batches].flatten(0, 1)
    if images.shape[1:] != view.shape:
        images = fit_images(images, view.shape)
    return view.scale.clamp(images), batches.repeat_interleave(inputs.shape[1])
