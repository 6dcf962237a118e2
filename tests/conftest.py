"""Without torch only the files that have `core` tests are read."""

import gc
from importlib.util import find_spec
from pathlib import Path

TORCH = find_spec("torch") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if TORCH or not collection_path.name.startswith("test_"):
        return None
    return True if "pytest.mark.core" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_finish() -> None:
    """What has been imported by now stays: looking for garbage in it takes a second each time."""
    gc.freeze()
