"""Gradient matching: from released gradients to inputs, and from mixed inputs to images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, CellFailed, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.gradmatch import GradmatchConfig, labels
from harness_plugins.attacks.gradmatch.decoding import Decoder
from harness_plugins.attacks.gradmatch.distances import TINY, FormedDistance, Observed
from harness_plugins.attacks.gradmatch.gradients import SimulatedUpdates, running_moments
from harness_plugins.attacks.gradmatch.inputs import Inputs, expected, input_shape
from harness_plugins.attacks.gradmatch.matching import Matched, Matching, distance_of
from harness_plugins.attacks.gradmatch.objective import Objective
from harness_plugins.local_training import LocalTraining, as_gradients, together
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.attacks.gradmatch.distances import Distance
    from harness_plugins.attacks.gradmatch.gradients import Moments


class GradientMatching(Attack[GradmatchConfig]):
    """One search for each released gradient and restart, many of them in one graph."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Images by batch; by name where batches are mixed and the mixture is known.

        Of updates, a batch is all that a party trained on.
        """
        view = as_gradients(view)
        shape, inputs = input_shape(view), expected(view)
        if shape != view.shape:
            fit_images(torch.empty(0, *shape), view.shape)  # raises where they cannot be targets
        mixed = _mixed(view, folded=inputs.folded)
        usable = _usable(view.gradients)
        alive = usable if mixed else usable & _first_round(view)
        matched = self._matching(view, inputs, shape).run(alive.nonzero().flatten(), progress)
        return self._answer(view, matched, usable, inputs, mixed=mixed)

    def _matching(self, view: View, inputs: Inputs, shape: tuple[int, ...]) -> Matching:
        size = together(view)
        return Matching(
            config=self.config,
            objective=self._objective(view, (size, *shape), folded=inputs.folded),
            inputs=inputs,
            labels=self._labels(view, size),
            batches=len(next(iter(view.gradients.values()))),
            shape=(size, *shape),
            classes=view.classes,
            stream=view.rng,
            device=view.device,
        )

    def _objective(self, view: View, shape: tuple[int, ...], *, folded: bool) -> Objective:
        moments = self._moments(view)
        return Objective(
            distance=self._distance(view, shape, watched=bool(moments)),
            tv=self.config.tv if view.scale.of_images else 0.0,
            bn=self.config.bn,
            moments=moments,
            folded=folded,
        )

    def _distance(self, view: View, shape: tuple[int, ...], *, watched: bool) -> Distance:
        told = "gradprune" in str(view.protocol.get("guards", ""))
        observed = Observed.of(view.gradients, adaptive=self.config.adaptive, told=told)
        train = view.protocol.get("bn_mode") == "train"
        like, kind = torch.zeros(shape, device=view.device), self.config.distance
        local = LocalTraining.of(view) if view.has(Channel.UPDATES) else None
        if local and local.steps > 1:
            simulated = SimulatedUpdates(view.model, local, train=train, watched=watched)
            return FormedDistance(simulated, observed, kind)
        return distance_of(view.model, observed, kind, like, train=train, watched=watched)

    def _moments(self, view: View) -> Moments:
        """What each BatchNorm should see: of each batch, or as the model has it from training."""
        if self.config.statistics == "none" or not self.config.bn:
            return {}
        exact = self.config.statistics == "exact"
        if not (exact or view.has(Channel.BN_STATISTICS)):
            return running_moments(view.model)
        known = view.bn_statistics
        layers = sorted({name.rpartition(".")[0] for name in known})
        return {layer: (known[f"{layer}.mean"], known[f"{layer}.var"]) for layer in layers}

    def _labels(self, view: View, size: int) -> Tensor | None:
        """[batches, b, classes], or None where they are to be found with the images."""
        if self.config.labels == "known" or view.has(Channel.BATCH_LABELS):
            return view.batch_labels
        if self.config.labels == "joint" or _several(view):
            return None
        rule: labels.Rule = "distinct" if self.config.labels == "distinct" else "counted"
        public = view.public.images if view.has(Channel.PUBLIC) else None
        return labels.reconstruct(rule, view.gradients, view.model, public, view.classes, size)

    def _answer(
        self, view: View, matched: Matched, usable: Tensor, inputs: Inputs, *, mixed: bool
    ) -> Reconstruction:
        found = matched.losses.isfinite()
        self._require_any(found, matched.restarts)
        claims = {} if view.has(Channel.BATCH_LABELS) else {"batch_labels": matched.labels}
        diagnostics = {
            "matching_loss": float(matched.losses[found].mean()),
            "restarts": float(matched.restarts),
            "diverged_restarts": float(matched.diverged),
            "unusable_gradients": float((~usable).sum()),
        }
        if mixed:
            images, targets = self._decode(view, matched, found, folded=inputs.folded)
            claims["inputs"] = matched.inputs
            return Reconstruction(images, targets, claims=claims, diagnostics=diagnostics)
        images, batches = _unmixed(view, matched.inputs, found)
        return Reconstruction(images, batches=batches, claims=claims, diagnostics=diagnostics)

    def _require_any(self, found: Tensor, restarts: int) -> None:
        if not bool(found.any()):
            raise CellFailed(
                f"every search diverged: the loss was no number in all {restarts} of them "
                f"({self.config.restarts} for each batch); try a lower lr or more restarts"
            )

    def _decode(
        self, view: View, matched: Matched, found: Tensor, *, folded: bool
    ) -> tuple[Tensor, Tensor]:
        """The images that are primary in a row that was found, and which they are."""
        sources = view.sources[found]
        there = sorted(set(sources[sources < view.n_private].tolist()))
        mixture = Mixture.of(view.weights[found], _renumbered(sources, there), len(there))
        rows = fit_images(matched.inputs[found].flatten(0, 1), view.shape).flatten(1)
        decoder = Decoder(mixture, _public_mean(view).flatten(), self.config.decode_ridge)
        if folded:
            stream = view.rng.stream(use="decode")
            images = decoder.folded(rows, self.config.decode_steps, stream)
        else:
            images = decoder.signed(rows)
        primary = set(sources[..., 0].flatten().tolist())
        places = [place for place, image in enumerate(there) if image in primary]
        targets = torch.tensor([there[place] for place in places], device=images.device)
        return view.scale.clamp(images[places].view(-1, *view.shape)), targets


def _usable(gradients: Mapping[str, Tensor]) -> Tensor:
    """[batches]: which gradients say anything; CellFailed where none does."""
    rows = [gradient.flatten(1) for gradient in gradients.values()]
    finite = torch.stack([each.isfinite().all(1) for each in rows]).all(0)
    square = torch.stack([each.square().sum(1) for each in rows]).sum(0)
    usable = finite & (square > TINY)
    if not bool(usable.any()):
        zero = int((finite & (square <= TINY)).sum())
        raise CellFailed(
            f"none of {len(usable)} released gradients can be matched: {zero} are zero (dead "
            "units, or a training that ended at a loss of zero) and "
            f"{int((~finite).sum())} hold values that are no numbers"
        )
    return usable


def _several(view: View) -> bool:
    """Whether inputs are known mixtures of several images."""
    known = {Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE} <= view.granted
    return known and view.weights.shape[-1] > 1


def _mixed(view: View, *, folded: bool) -> bool:
    """Whether images are decoded from inputs: of mixtures, or of several inputs of one image.

    What is alone in its batch has a name where sources are known, and may be averaged over
    rounds; batches of several tell their images apart by labels only.
    """
    if _several(view):
        return True
    if not {Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE} <= view.granted:
        return False
    alone = view.weights.shape[1] == 1
    return alone and (folded or int(view.protocol.get("rounds", 1)) > 1)


def _first_round(view: View) -> Tensor:
    """[batches]: those of the first round.

    Where nobody says which images of different rounds are one, an answer to each image is all
    that counts.
    """
    count = len(next(iter(view.gradients.values())))
    first = count // int(view.protocol.get("rounds", 1))
    return torch.arange(count, device=view.device) < first


def _renumbered(sources: Tensor, there: list[int]) -> Tensor:
    """Sources as places in `there`; public images get the first number beyond."""
    places = sources.new_full((max(int(sources.max()), *there) + 1,), len(there))
    places[torch.tensor(there, device=sources.device)] = torch.arange(
        len(there), device=sources.device
    )
    return places[sources]


def _public_mean(view: View) -> Tensor:
    if view.has(Channel.PUBLIC):
        return view.public.images.mean(0)
    return torch.zeros(view.shape, device=view.device)


def _unmixed(view: View, inputs: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Images [m, *view.shape] and their batches."""
    batches = found.nonzero().flatten()
    images = inputs[batches].flatten(0, 1)
    if images.shape[1:] != view.shape:
        images = fit_images(images, view.shape)
    return view.scale.clamp(images), batches.repeat_interleave(inputs.shape[1])
