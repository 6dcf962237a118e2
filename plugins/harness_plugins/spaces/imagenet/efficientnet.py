"""The convolutions of EfficientNet-Lite0, for inference: no BatchNorm is left in it."""

from __future__ import annotations

from itertools import chain

from torch import Tensor, nn
from torch.nn.functional import pad

# Blocks, kernel, stride of the first block, expansion and output channels of each stage:
# EfficientNet-B0's (Tan & Le 2019, table 1), without squeeze-and-excitation.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280


class EfficientNetLite0(nn.Module):
    """Normalised images [b,3,h,w] to features [b,1280,⌈h/32⌉,⌈w/32⌉] in [0,6]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, STEM, 3, stride=2)
        self.blocks = nn.Sequential(*_blocks())
        self.head = Convolution(STAGES[-1][-1], HEAD)

    def forward(self, images: Tensor) -> Tensor:
        """Features before the last pooling."""
        features: Tensor = self.head(self.blocks(self.stem(images)))
        return features


def _blocks() -> list[nn.Module]:
    blocks: list[nn.Module] = []
    inputs = STEM
    for count, kernel, first_stride, expansion, outputs in STAGES:
        for stride in [first_stride] + [1] * (count - 1):
            blocks.append(Block(inputs, outputs, kernel, stride, expansion))
            inputs = outputs
    return blocks


class Block(nn.Module):
    """Expand, filter each channel, project; what came in is added where the shape is kept."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = nn.Identity() if expansion == 1 else Convolution(inputs, hidden)
        self.depthwise = Convolution(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.project = Convolution(hidden, outputs, active=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[b,inputs,h,w] to [b,outputs,⌈h/stride⌉,⌈w/stride⌉]."""
        projected: Tensor = self.project(self.depthwise(self.expand(x)))
        return projected + x if self.residual else projected


class Convolution(nn.Conv2d):
    """Padded as TensorFlow's SAME, with a bias; then ReLU6 where it is `active`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        active: bool = True,
    ) -> None:
        centred = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, padding=centred, groups=groups)
        self.act = nn.ReLU6(inplace=True) if active else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[b,inputs,h,w] to [b,outputs,⌈h/stride⌉,⌈w/stride⌉]."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride > 1:
            around = (same_padding(side, kernel, stride) for side in (x.shape[3], x.shape[2]))
            x = pad(x, tuple(chain.from_iterable(around)))
        convolved: Tensor = self.act(super().forward(x))
        return convolved


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after a side, so that ⌈side/stride⌉ are left; the odd one goes behind."""
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2
