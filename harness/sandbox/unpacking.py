"""What arrived of an asset, unpacked within walls: whoever made the archive is a stranger.

    python -m harness.sandbox.unpacking FUNCTION CACHE ARRIVED FOLDER

Says on standard output, as the last line, what went wrong: {"error": …, "errno": …}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from pkgutil import resolve_name

from harness.sandbox.jail import UNCONFINED, confine
from harness.sandbox.reach import devices, readable


def main(function: str, cache: str, arrived: str, folder: str) -> None:
    """Confine this process, and let a plugin's function at the archive."""
    if not os.environ.get(UNCONFINED):
        os.environ["TMPDIR"] = folder
        confine([*readable(Path(cache)), arrived], [folder, *devices()])
    try:
        resolve_name(function)(Path(arrived), Path(folder))
    except Exception as error:  # noqa: BLE001  a broken archive makes readers raise anything
        # Readers of archives and images raise OSError too, without a number from the system.
        number = error.errno if isinstance(error, OSError) else None
        print()
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "errno": number}))
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
