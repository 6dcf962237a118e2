"""A security benchmark for training-data protection.

from harness import evaluate
record = evaluate(defense="singmix[tau=1e-2]", attack="linear", dataset="cifar10")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evaluation import evaluate

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate"]


def __getattr__(name: str) -> Any:
    """Import what is heavy only when it is asked for."""
    if name == "evaluate":
        from harness.evaluation import evaluate

        return evaluate
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
