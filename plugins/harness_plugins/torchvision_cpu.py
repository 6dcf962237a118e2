"""torchvision beside a CPU-only torch.

The usual torchvision wheel registers its compiled operators from a library that wants CUDA's.
Where torch has none, that library does not load, and `import torchvision` fails because two
operators lack a schema. Declaring the schemas is enough for models, datasets and transforms;
`ops.nms` and `io` stay unavailable.
"""

from __future__ import annotations

from types import ModuleType

import torch

_MISSING = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a Library takes its schemas with it when it goes


def load_torchvision() -> ModuleType:
    """Import torchvision; call it before anything that imports torchvision by itself.

    Only a torch without CUDA and ROCm is helped: on any other, the import's error surfaces.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if not _cpu_only() or "torchvision::" not in str(error):
            raise
        _declare_missing_operators()
        import torchvision
    return torchvision


def _cpu_only() -> bool:
    return torch.version.cuda is None and torch.version.hip is None


def _declare_missing_operators() -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _MISSING:
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _SCHEMA)
    _declared.append(library)
