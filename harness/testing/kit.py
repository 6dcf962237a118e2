"""The kit's own images: small, made on the spot, and of every kind that plugins stumble over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.api import AssetFolder, Collection, Config, Dataset, DatasetSpec, Samples, Scale
from harness.asking.registry import OWN_DISTRIBUTION, Origin, Registry, registry

if TYPE_CHECKING:
    from torch import Tensor

NAME = "conformance-kit"
CLASSES = ("across", "upright", "slanting")

CaseName = Literal["tiny", "grey", "colour", "odd-sized", "one-class", "constant"]


@dataclass(frozen=True)
class Case:
    """The shape of one image, and how many there are."""

    shape: tuple[int, int, int] = (1, 16, 16)
    private: int = 24
    public: int = 64
    test: int = 24

    @property
    def sizes(self) -> dict[str, int]:
        """As options of an evaluation."""
        return {
            "private_size": self.private,
            "public_size": self.public,
            "test_size": self.test,
        }


CASES: dict[str, Case] = {
    "tiny": Case(private=2, public=4, test=4),
    "grey": Case(),
    "colour": Case(shape=(3, 16, 16)),
    "odd-sized": Case(shape=(1, 9, 7)),
    "one-class": Case(),
    "constant": Case(),
}


class KitConfig(Config):
    """Which of the kit's collections."""

    case: CaseName = Field("grey", description="what is odd about the images")


class Kit(Dataset[KitConfig]):
    """Smooth waves [n, c, h, w] uint8, no two of them alike."""

    def load(self, assets: AssetFolder) -> Collection:
        """The same images every time: the generator is the dataset's own."""
        import torch

        name = self.config.case
        case = CASES[name]
        generator = torch.Generator().manual_seed(17)
        total = case.private + case.public + case.test
        images = _flat(total, case.shape) if name == "constant" else _waves(total, case, generator)
        labels = torch.arange(total) % (1 if name == "one-class" else len(CLASSES))
        every = Samples(images, labels)
        train = total - case.test
        channels = case.shape[0]
        scale = Scale((0.5,) * channels, (0.3,) * channels)
        return Collection(every[:train], every[train:], scale, CLASSES)


def _waves(total: int, case: Case, generator: Any) -> Tensor:
    """One wave for each image and channel, in the direction of its class, and a little noise."""
    import torch

    channels, height, width = case.shape
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])[torch.arange(total) % 3]
    rows, columns = torch.arange(height) / height, torch.arange(width) / width
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    along = (directions.view(total, 1, 2, 1, 1) * grid).sum(2)
    lengths, phases = torch.rand(2, total, channels, 1, 1, generator=generator)
    waves = torch.sin(2 * torch.pi * ((1 + lengths) * along + phases))
    noise = torch.randn(total, *case.shape, generator=generator)
    return (255 * (0.5 + 0.4 * waves + 0.03 * noise).clamp(0, 1)).round().byte()


def _flat(total: int, shape: tuple[int, int, int]) -> Tensor:
    """Each image of one brightness, its own."""
    import torch

    levels = torch.linspace(0, 255, total).round().byte()
    return levels.view(-1, 1, 1, 1).expand(-1, *shape).contiguous()


SPEC = DatasetSpec(
    name=NAME,
    version="1",
    summary="waves in three directions, for checks of plugins",
    reference="made up here",
    factory="harness.testing.kit:Kit",
    config=KitConfig,
)


@cache
def known() -> Registry:
    """What is installed, and the kit's images; in this process alone."""
    found = registry()
    found.add("datasets", SPEC, Origin(OWN_DISTRIBUTION, SPEC.version, NAME, __name__))
    return found
