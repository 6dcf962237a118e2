"""Ridge regression from features to images, learned on the public pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness_plugins.features.encoder import embed

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Progress, View

# Of the mean eigenvalue of the kernel: from next to nothing to the mean image.
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def regress(view: View, most: int, progress: Progress) -> tuple[Tensor, dict[str, float]]:
    """[n, *view.shape] from features [n, ...], and the penalty that was chosen.

    The regression is solved in its dual form, (K + λI) a = Y, on at most `most` public images;
    a tenth of them is held out and chooses λ.
    """
    public = view.public.images[:most]
    features = embed(view, public).flatten(1)
    asked = view.features.flatten(1)
    held = max(1, len(public) // 10)
    dual = _Dual(features[held:], public[held:].flatten(1))
    errors = []
    for step, penalty in enumerate(_PENALTIES):
        guess = view.scale.clamp(dual.predict(features[:held], penalty).view_as(public[:held]))
        errors.append(float((guess - public[:held]).square().mean()))
        progress(step + 1, len(_PENALTIES), f"held-out error {errors[-1]:.3f}")
    penalty = _PENALTIES[errors.index(min(errors))]
    images = dual.predict(asked, penalty).view(-1, *view.shape)
    return view.scale.clamp(images), {"ridge_penalty": penalty, "held_out_mse": min(errors)}


class _Dual:
    """Centred features [m, p] and images [m, q], and their kernel."""

    def __init__(self, features: Tensor, images: Tensor) -> None:
        self.features_mean, self.images_mean = features.mean(0), images.mean(0)
        self.features = features - self.features_mean
        self.images = images - self.images_mean
        self.kernel = self.features @ self.features.T

    def predict(self, features: Tensor, penalty: float) -> Tensor:
        """[n, q] for features [n, p], with the penalty in units of the mean eigenvalue."""
        ridge = penalty * self.kernel.diagonal().mean().clamp(min=1e-12)
        system = self.kernel + ridge * torch.eye(len(self.kernel), device=self.kernel.device)
        answer = torch.linalg.solve(system, self.images)
        likeness = (features - self.features_mean) @ self.features.T
        images: Tensor = likeness @ answer + self.images_mean
        return images
