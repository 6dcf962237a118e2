"""Without torch only the files that have `core` tests are read."""

from importlib.util import find_spec
from pathlib import Path

TORCH = find_spec("torch") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if TORCH or not collection_path.name.startswith("test_"):
        return None
    return True if "pytest.mark.core" not in collection_path.read_text(encoding="utf-8") else None
