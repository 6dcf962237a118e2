"""The convolutions of ResNet-50 as its authors published it, for inference.

No BatchNorm is left in it. Where a block halves its maps, its first 1 x 1 convolution does so;
in torchvision's variant the 3 x 3 convolution does.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Blocks, and channels inside each, of the stages `conv2_x` … `conv5_x` (He et al., table 1)."""
STEM, EXPANSION = 64, 4


class ResNet50(nn.Module):
    """Images [b,3,h,w], their mean colour taken off, to features [b,2048,⌈h/32⌉,⌈w/32⌉] ≥ 0."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, STEM, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*_blocks())

    def forward(self, images: Tensor) -> Tensor:
        """Features before the last pooling."""
        features: Tensor = self.blocks(max_pool2d(relu(self.stem(images)), 3, 2, padding=1))
        return features


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    inputs = STEM
    for stage, (count, hidden) in enumerate(STAGES):
        for position in range(count):
            stride = 2 if stage and not position else 1
            blocks.append(Bottleneck(inputs, hidden, stride, projects=not position))
            inputs = hidden * EXPANSION
    return blocks


class Bottleneck(nn.Module):
    """Reduce, filter, expand; what came in is added, through a projection where it `projects`."""

    def __init__(self, inputs: int, hidden: int, stride: int, *, projects: bool) -> None:
        super().__init__()
        outputs = hidden * EXPANSION
        self.reduce = nn.Conv2d(inputs, hidden, 1, stride)
        self.filter = nn.Conv2d(hidden, hidden, 3, padding=1)
        self.expand = nn.Conv2d(hidden, outputs, 1)
        self.project = nn.Conv2d(inputs, outputs, 1, stride) if projects else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[b,inputs,h,w] to [b,4·hidden,⌈h/stride⌉,⌈w/stride⌉]."""
        inner = relu(self.filter(relu(self.reduce(x), inplace=True)), inplace=True)
        expanded: Tensor = self.expand(inner)
        return relu(expanded.add_(self.project(x)), inplace=True)
