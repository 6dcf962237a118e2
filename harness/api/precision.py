"""What networks compute in while they are trained, and which machines gain from less of it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Literal

Precision = Literal["float32", "bfloat16"]
"""Of a network in training; its weights, and what it answers once trained, are float32."""


def multiplies_bfloat16(device: str) -> bool:
    """Whether a device of this class multiplies such numbers; emulated, they would be slower.

    Of a CPU this is read without torch. Where the environment forbids oneDNN instructions, it does
    not count as one that does.
    """
    if device == "cuda":
        import torch

        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(False)
    cpu = Path("/proc/cpuinfo")
    plain = device != "cpu" or platform.machine() != "x86_64" or "ONEDNN_MAX_CPU_ISA" in os.environ
    if plain or not cpu.exists():
        return False
    return bool(re.search(r"\b(avx512_bf16|amx_bf16)\b", cpu.read_text(encoding="utf-8")))
