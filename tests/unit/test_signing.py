"""A signed board says by whom, until a byte of what is signed is another one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from handed_in import make_board, submit

from harness.api import IntegrityError, UsageError
from harness.boards.folder import BoardFolder
from harness.boards.signing import FILE, draw_signing_key, private_keys, sign, signed_by
from harness.drawing.publishing import checked, files_of, write
from harness.packages.keys import make_key
from harness.results.build import board_view
from harness.results.material import gathered
from harness.submissions.checks import Verdict, exit_code
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core


@pytest.fixture
def board(tmp_path: Path) -> BoardFolder:
    """A board with a submission, an answer that is kept, and its pages."""
    folder = make_board(tmp_path / "board")
    submit(folder)
    return folder


@pytest.fixture
def key(tmp_path: Path) -> Path:
    draw_signing_key(tmp_path / "boards.key")
    return tmp_path / "boards.key"


def verified(path: Path) -> list[Verdict]:
    with Verifier(path, judge=False) as verifier:
        return list(verifier.verify(str(path)))


def test_a_board_says_that_it_is_unsigned_or_by_whom_it_is_signed(
    board: BoardFolder, key: Path
) -> None:
    assert verified(board.path)[-1].notes[-1] == "unsigned"
    assert "unsigned" not in " ".join(note for v in verified(board.path)[:-1] for note in v.notes)
    name = sign(board.path, key)
    found = verified(board.path)
    assert exit_code(found) == 0
    assert signed_by(board.path) == name
    for each in found:
        told = f"signed by {name}" in each.notes
        assert told == (each.what in ("record", "board")), each
    report, view = checked(board)
    assert (report.signed, view.signer) == (name, name)
    assert f"This board is signed by {name}." in files_of(view)["README.md"].decode()


def test_pages_are_no_part_of_what_is_signed(board: BoardFolder, key: Path) -> None:
    sign(board.path, key)
    write(board.path, files_of(board_view(gathered(board))))
    assert exit_code(verified(board.path)) == 0


def first(board: BoardFolder, pattern: str) -> Path:
    return sorted(board.path.glob(pattern))[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


CHANGES: dict[str, Callable[[BoardFolder], object]] = {
    "a bit of a record that its id does not cover": lambda b: first(b, "records/*").write_text(
        first(b, "records/*").read_text().replace('"created":"2026', '"created":"2025')
    ),
    "a record less": lambda b: first(b, "records/*").unlink(),
    "a file more": lambda b: (b.path / "records" / "x.txt").write_text("x"),
    "another name": lambda b: first(b, "controls/*").rename(b.path / "controls" / "x.json"),
    "a bit of a report": lambda b: flip(first(b, "controls/*")),
    "a bit of an answer that was handed in": lambda b: flip(
        first(b, "submissions/*/reconstructions/*")
    ),
    "the protocol": lambda b: (b.path / "board.toml").write_text(
        "# mine\n" + (b.path / "board.toml").read_text()
    ),
    "the signature": lambda b: resign(b, signature="0" * 128),
    "the key": lambda b: resign(b, public_key="0" * 64),
}


def resign(board: BoardFolder, **changes: str) -> None:
    path = board.path / FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("change", CHANGES)
def test_a_signature_does_not_fit_what_was_changed(
    board: BoardFolder, key: Path, change: str
) -> None:
    sign(board.path, key)
    assert signed_by(board.path)
    CHANGES[change](board)
    with pytest.raises(IntegrityError, match="does not fit"):
        signed_by(board.path)
    found = verified(board.path)
    assert exit_code(found) == 3
    assert any("does not fit" in note for note in found[-1].notes)
    assert not any("signed by" in note for each in found[:-1] for note in each.notes)
    alone = verified(first(board, "records/*.json"))
    assert exit_code(alone) == 3
    assert gathered_signer(board) == ""


def gathered_signer(board: BoardFolder) -> str:
    try:
        return gathered(board).signer
    except IntegrityError:
        return ""


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "encoding-harness/signature/2"}', "\xff"])
def test_what_is_no_signature_is_refused(board: BoardFolder, text: str) -> None:
    (board.path / FILE).write_text(text)
    assert exit_code(verified(board.path)) == 3


def test_a_key_is_its_keepers_alone(board: BoardFolder, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    os.chmod(key, 0o640)  # noqa: PTH101
    with pytest.raises(UsageError, match=r"Others can read .*mode 0640"):
        sign(board.path, key)
    with pytest.raises(UsageError, match="nothing is written over a key"):
        draw_signing_key(key)
    with pytest.raises(UsageError, match="There is no key"):
        sign(board.path, key.with_name("other.key"))
    owner = make_key(key.with_name("owner.key"))
    with pytest.raises(UsageError, match="no key that signs boards"):
        sign(board.path, owner.path)
    assert not (board.path / FILE).exists()


@pytest.mark.parametrize("place", ["boards.key", "records/notes.txt", "submissions/mine/k"])
def test_a_private_key_in_the_tree_is_refused(board: BoardFolder, key: Path, place: str) -> None:
    assert not [*private_keys(board.path)]
    (board.path / place).write_bytes(key.read_bytes())
    assert [*private_keys(board.path)] == [board.path / place]
    assert any("holds a private key" in fault for fault in checked(board)[0].faults)


def test_so_is_an_owners(board: BoardFolder) -> None:
    assert [make_key(board.path / "mine").path] == [*private_keys(board.path)]
