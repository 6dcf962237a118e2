"""A security benchmark for training-data protection.

from harness import evaluate, load_board
record = evaluate(defense="singmix[tau=1e-2]", attack="linear", dataset="cifar10")
record.to_frame()  # its scores as a pandas table
load_board("cifar10-v2")  # those of all records of a board
load_model("model").predict("scans")  # classes of images, by a model of `harness learn`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.evaluation import evaluate
    from harness.packages.model import load_model
    from harness.results.tables import load_board

__version__ = "0.1.0"
__all__ = ["__version__", "evaluate", "load_board", "load_model"]


def __getattr__(name: str) -> Any:
    """Import what is heavy only when it is asked for."""
    if name == "evaluate":
        from harness.evaluation import evaluate

        return evaluate
    if name == "load_model":
        from harness.packages.model import load_model

        return load_model
    if name == "load_board":
        from harness.results.tables import load_board

        return load_board
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
