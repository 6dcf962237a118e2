"""How fast ResNet-50's features are extracted, and what a linear probe makes of them.

    python benchmarks/extraction.py [--train 2000] [--test 5000] [--json]

CIFAR-10 at 96 pixels, in float32 and in bfloat16, which take turns on the same images; times are
of one core, the best of the turns: the engine computes as many batches at a time as it has cores.
The first `--train` training images, in the order of the files, are learned from, their maps pooled
to 2048 values: ridge regression on standardised values, its penalty chosen by leaving out one
training image at a time. Both probes see the same images, so the difference between them is what
bfloat16 costs.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import Tensor

from harness.api import AssetFolder, Config, Samples
from harness.assets.lookup import folder
from harness.store.features import BATCH
from harness.store.paths import cache_root
from harness_plugins.datasets.cifar10 import CIFAR10
from harness_plugins.datasets.cifar10.dataset import Cifar10
from harness_plugins.spaces.imagenet import RESNET50, ImageNetConfig, arithmetic
from harness_plugins.spaces.imagenet.networks import ResNet50Space

IMAGES = 60_000
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Times the trace of the Gram matrix over its size."""


class In(ResNet50Space):
    """The space, computed in a type of the benchmark's choosing."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(ImageNetConfig())
        self.dtype = dtype

    def computed_in(self, device: torch.device) -> torch.dtype:
        """What it was made with."""
        return self.dtype


def extracted(
    spaces: dict[str, In], samples: Samples, assets: AssetFolder
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Pooled features [n, 2048] and the least seconds a batch took, by space, batches in turn."""
    pooled: dict[str, list[Tensor]] = {name: [] for name in spaces}
    least = dict.fromkeys(spaces, float("inf"))
    for start in range(0, len(samples), BATCH):
        images = samples[start : start + BATCH].unit().images
        for name, space in spaces.items():
            began = time.process_time()
            maps = space.embed(images, assets)
            if len(images) == BATCH:
                least[name] = min(least[name], time.process_time() - began)
            pooled[name].append(maps.float().mean((2, 3)))
    return {name: torch.cat(parts) for name, parts in pooled.items()}, least


def probe(train: Tensor, test: Tensor, labels: Tensor, truth: Tensor) -> float:
    """Accuracy of ridge regression on one-hot labels."""
    std, mean = torch.std_mean(train, 0)
    seen, new = ((part - mean) / (std + 1e-6) for part in (train, test))
    gram, wanted = seen @ seen.T, torch.eye(10)[labels] - 0.1
    found: dict[float, Tensor] = {}
    for penalty in PENALTIES:
        inverse = torch.linalg.inv(gram + penalty * gram.trace() / len(gram) * torch.eye(len(gram)))
        dual = inverse @ wanted
        # What each image's own answer is without it (Cawley & Talbot 2003).
        alone = wanted - dual / inverse.diagonal().view(-1, 1)
        found[(alone.argmax(1) == labels).double().mean().item()] = dual
    best = found[max(found)]
    return float(((new @ seen.T @ best).argmax(1) == truth).double().mean())


def measured(train: int, test: int) -> dict[str, object]:
    assets = folder([CIFAR10, RESNET50], cache_root())
    held = Cifar10(Config()).load(assets)
    seen, new = held.train[:train], held.test[:test]
    spaces = {"float32": In(torch.float32), "bfloat16": In(torch.bfloat16)}
    learned, first = extracted(spaces, seen, assets)
    asked, second = extracted(spaces, new, assets)
    seconds = {name: min(first[name], second[name]) / BATCH for name in spaces}
    return {
        "the space uses": arithmetic(),
        "milliseconds an image": {n: round(1000 * s, 2) for n, s in seconds.items()},
        f"minutes of {IMAGES} images": {n: round(IMAGES * s / 60, 1) for n, s in seconds.items()},
        "times, float32 over bfloat16": round(seconds["float32"] / seconds["bfloat16"], 2),
        "accuracy of the probe": {
            name: round(probe(learned[name], asked[name], seen.labels, new.labels), 4)
            for name in spaces
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(asked.train, asked.test)
    if asked.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
