"""A fault that shows on a machine with an accelerator alone, unless the source is read."""

import torch

from harness.api import Attack, Reconstruction


class PrefersCuda(Attack):
    def reconstruct(self, view, prepared, budget, progress):
        images = view.encodings[0]
        if torch.cuda.is_available():
            images = images.to("cuda")
        return Reconstruction(images, rows=torch.arange(len(images)))
