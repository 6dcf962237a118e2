"""Arrays inside uncompressed .npz files, mapped where they are.

An .npz is a zip of .npy files. A member that is stored, not deflated, lies in it byte for byte.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from harness.api import UsageError
from harness_plugins.datasets.cifar5m.files import opened

# The fixed part of a member's own header ends with the lengths of its name and extra field.
LOCAL_HEADER = struct.Struct("<26xHH")


def _stored(archive: zipfile.ZipFile, name: str, path: Path) -> zipfile.ZipInfo:
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        raise UsageError(
            f"'cifar5m': {name} in {path} is compressed and cannot be mapped. Store it plainly, "
            "once, where there is memory for it: "
            f"python -c \"import numpy; numpy.savez('plain.npz', **numpy.load('{path}'))\""
        )
    return entry


def _begin(stream: BinaryIO, entry: zipfile.ZipInfo) -> None:
    """Move to the first byte of a stored member."""
    stream.seek(entry.header_offset)
    name, extra = LOCAL_HEADER.unpack(stream.read(LOCAL_HEADER.size))
    stream.seek(name + extra, 1)


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and type of the .npy that begins here; moves on to its values."""
    major, _ = np.lib.format.read_magic(stream)
    if major == 1:
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def mapped(path: Path, name: str) -> NDArray[Any]:
    """One member of an .npz as an array that is read from the file where it is used.

    UsageError where it is missing, compressed, cut off or no array of numbers. Writes to the
    array stay in memory.
    """
    with opened(path) as archive:
        entry = _stored(archive, name, path)
    with path.open("rb") as stream:
        _begin(stream, entry)
        try:
            shape, fortran, dtype = _header(stream)
            if dtype.hasobject:
                raise ValueError("it holds pickled objects")
            order: Literal["C", "F"] = "F" if fortran else "C"
            # Copy-on-write, so that torch is given memory it may call writable.
            return np.memmap(path, dtype, "c", stream.tell(), shape, order)
        except (ValueError, EOFError) as error:
            raise UsageError(f"'cifar5m': {name} in {path} is no array: {error}") from error
