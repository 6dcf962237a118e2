"""Getting and verifying assets: from loopback servers, local archives and registries' clients."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.api import (
    Asset,
    AssetFile,
    AssetUnavailable,
    IntegrityError,
    Source,
)
from harness.api.errors import StoreError
from harness.assets import fetch, folder, locate
from harness.assets.clients import apt_download, data_archive
from harness.assets.download import SourceFailed

pytestmark = pytest.mark.core

BODY = bytes(range(256)) * 4096
NOWHERE = "http://127.0.0.1:9/data.bin"
"""The discard port: nothing answers there."""


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def asset(*sources: Source, data: bytes = BODY, name: str = "thing") -> Asset:
    return Asset(name, "a thing", "MIT", (AssetFile("data.bin", sha(data)),), sources)


class Server(ThreadingHTTPServer):
    """Serves `body` at every path; the first `cuts` answers stop half way."""

    body = BODY
    cuts = 0
    tag: str | None = '"one"'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        same = asked is not None and self.headers.get("If-Range") == self.server.tag
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and same else 0
        body = self.server.body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/*")
        if self.server.tag:
            self.send_header("ETag", self.server.tag)
        self.end_headers()
        if self.server.cuts:
            self.server.cuts -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(autouse=True)
def found_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks works in a process of its own, which looks for its function here too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=partial(running.serve_forever, 0.01))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(address: str) -> Source:
    return Source("url", address)


def leftovers(root: Path) -> list[str]:
    return sorted(
        path.name
        for path in (root / "assets").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


# ---------------------------------------------------------------- url sources


def test_a_file_arrives_verified_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = fetch(asset(url(server.address)), tmp_path, lambda *now: seen.append(now))
    assert (report.folder / "data.bin").read_bytes() == BODY
    assert report.source == f"url {server.address}"
    assert seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_cut_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cuts = 2
    report = fetch(asset(url(server.address)), tmp_path)
    half = len(BODY) // 2
    assert server.ranges == [None, f"bytes={half}-", f"bytes={half + half // 2}-"]
    assert (report.folder / "data.bin").read_bytes() == BODY
    assert leftovers(tmp_path) == ["data.bin", "thing.verified.json"]


def test_a_later_call_goes_on_with_what_an_earlier_one_left(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(server.address))
    server.cuts = 10**6
    with pytest.raises(AssetUnavailable, match="the connection ended after"):
        fetch(wanted, tmp_path)
    server.cuts = 0
    fetch(wanted, tmp_path)
    assert server.ranges[-1] == f"bytes={len(BODY) - 1}-"


def test_without_a_version_a_cut_download_begins_again(server: Server, tmp_path: Path) -> None:
    server.cuts = 1
    server.tag = None  # no way to know the file again: a second half would be a guess
    fetch(asset(url(server.address)), tmp_path)
    assert server.ranges == [None, None]


def test_a_file_that_changed_meanwhile_begins_again(server: Server, tmp_path: Path) -> None:
    server.cuts = 1
    first = asset(url(server.address))
    real = server.body

    def change(done: int, total: int) -> None:
        server.body, server.tag = real[::-1], '"two"'

    with pytest.raises(IntegrityError):
        fetch(first, tmp_path, change)
    assert fetch(asset(url(server.address), data=real[::-1]), tmp_path).source


def test_a_server_that_always_cuts_is_given_up(server: Server, tmp_path: Path) -> None:
    server.cuts = 10**6
    server.tag = None
    with pytest.raises(AssetUnavailable, match="the connection ended after"):
        fetch(asset(url(server.address)), tmp_path)


def test_wrong_bytes_are_an_error_and_nothing_is_kept(server: Server, tmp_path: Path) -> None:
    server.body = BODY[:-1] + b"!"
    with pytest.raises(IntegrityError) as caught:
        fetch(asset(url(server.address)), tmp_path)
    message = str(caught.value)
    assert sha(BODY) in message
    assert sha(server.body) in message
    assert "data.bin" in message
    assert leftovers(tmp_path) == []


def test_a_wrong_archive_is_refused_before_it_is_unpacked(server: Server, tmp_path: Path) -> None:
    source = Source("url", server.address, unpack="no.such:module", digest=sha(b"else"))
    with pytest.raises(IntegrityError, match=r"data\.bin from url"):
        fetch(asset(source), tmp_path)


def test_an_unreadable_archive_is_an_integrity_error(server: Server, tmp_path: Path) -> None:
    source = Source("url", server.address, unpack=f"{__name__}:unpack_tar")
    with pytest.raises(IntegrityError, match="cannot be read"):
        fetch(asset(source), tmp_path)


@pytest.mark.parametrize("deed", ["looks_around", "ends_at_once"])
def test_what_unpacks_sees_the_archive_alone(deed: str, server: Server, tmp_path: Path) -> None:
    (tmp_path / "of-nobody").write_text("secret")
    source = Source("url", server.address, unpack=f"{__name__}:{deed}")
    told = {"looks_around": "Permission denied", "ends_at_once": "exit code 7"}[deed]
    with pytest.raises((IntegrityError, StoreError), match=told) as found:
        fetch(asset(source), tmp_path)
    assert "found it" not in str(found.value)


def looks_around(arrived: Path, _target: Path) -> None:
    (secret,) = (path for path in arrived.parents if (path / "of-nobody").exists())
    (secret / "of-nobody").read_text()
    raise ValueError("found it")


def ends_at_once(_arrived: Path, _target: Path) -> None:
    os._exit(7)


def unpack_tar(arrived: Path, target: Path) -> None:
    with tarfile.open(arrived) as tar:
        tar.getmember("data.bin")


def test_several_addresses_arrive_as_one_folder(server: Server, tmp_path: Path) -> None:
    base = server.address.removesuffix("data.bin")
    server.body = gzip.compress(BODY)
    files = (AssetFile("a", sha(BODY)), AssetFile("b", sha(BODY)))
    source = Source("url", f"{base}a.gz {base}b.gz", unpack="harness_plugins.archives:gunzip")
    report = fetch(Asset("pair", "two", "MIT", files, (source,)), tmp_path)
    assert sorted(path.name for path in report.folder.iterdir()) == ["a", "b"]


def test_unreachable_sources_are_skipped_with_a_reason(server: Server, tmp_path: Path) -> None:
    report = fetch(asset(url(NOWHERE), url(server.address)), tmp_path)
    assert report.source == f"url {server.address}"
    assert [skip.source for skip in report.skipped] == [f"url {NOWHERE}"]
    assert "not reachable: " in report.skipped[0].reason


def test_when_nothing_delivers_every_source_is_named(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(NOWHERE), url("ftp://127.0.0.1/x"), Source("package", "no_such_package:x"))
    with pytest.raises(AssetUnavailable) as caught:
        fetch(wanted, tmp_path)
    message = str(caught.value)
    assert "not reachable" in message
    assert "not an HTTP address" in message
    assert "the package is not installed" in message
    assert "harness assets fetch thing" in message


def test_fetching_twice_downloads_once_unless_forced(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(server.address))
    fetch(wanted, tmp_path)
    assert fetch(wanted, tmp_path).source is None
    assert len(server.ranges) == 1
    assert fetch(wanted, tmp_path, force=True).source
    assert len(server.ranges) == 2


def test_two_fetches_at_once_download_once(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(server.address))
    threads = [threading.Thread(target=fetch, args=(wanted, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.ranges) == 1


def test_a_file_in_the_way_is_one_clear_message(server: Server, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.write_text("I am a file")
    with pytest.raises(StoreError, match=r"root.*in the way"):
        fetch(asset(url(server.address)), root)


# ---------------------------------------------------------------- what is here


def test_an_absent_asset_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(AssetUnavailable, match=r"harness assets fetch thing$"):
        locate(asset(url(NOWHERE)), tmp_path)


def test_a_corrupted_file_names_file_digests_and_mending(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(server.address))
    file = fetch(wanted, tmp_path).folder / "data.bin"
    file.write_bytes(b"corrupted")
    with pytest.raises(IntegrityError) as caught:
        locate(wanted, tmp_path)
    message = str(caught.value)
    assert "'thing' is damaged: data.bin" in message
    assert sha(BODY) in message
    assert sha(b"corrupted") in message
    assert message.endswith("harness assets fetch thing --force")
    fetch(wanted, tmp_path, force=True)
    assert locate(wanted, tmp_path) == file.parent


def test_a_missing_file_names_the_mending(server: Server, tmp_path: Path) -> None:
    wanted = asset(url(server.address))
    (fetch(wanted, tmp_path).folder / "data.bin").unlink()
    with pytest.raises(IntegrityError, match=r"data\.bin is missing.*--force"):
        locate(wanted, tmp_path)


def test_unchanged_files_are_hashed_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asset(url(server.address))
    file = fetch(wanted, tmp_path).folder / "data.bin"
    hashed: list[Path] = []
    real = hashlib.file_digest

    def counting(stream: io.BufferedReader, algorithm: object) -> object:
        hashed.append(Path(stream.name))
        return real(stream, algorithm)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counting)
    locate(wanted, tmp_path)
    assert hashed == []
    os.utime(file, ns=(1, 1))
    locate(wanted, tmp_path)
    locate(wanted, tmp_path)
    assert hashed == [file]


def test_a_changed_digest_in_the_declaration_is_noticed(server: Server, tmp_path: Path) -> None:
    fetch(asset(url(server.address)), tmp_path)
    with pytest.raises(IntegrityError):
        locate(asset(url(server.address), data=b"newer"), tmp_path)


def test_what_comes_with_a_package_is_verified_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "site" / "some_package" / "data"
    inside.mkdir(parents=True)
    (inside.parent / "__init__.py").touch()
    (inside / "data.bin").write_bytes(BODY)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    wanted = asset(Source("package", "some_package:data"))
    got = folder([wanted], tmp_path / "root")
    assert got.path("thing", "data.bin") == inside / "data.bin"
    (inside / "data.bin").write_bytes(b"corrupted")
    with pytest.raises(IntegrityError, match="pip install --force-reinstall --no-deps some_pack"):
        fetch(wanted, tmp_path / "root", force=True)


# ---------------------------------------------------------------- registries


def pack(path: Path, members: dict[str, bytes]) -> bytes:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path.read_bytes()


PKG_INFO = b"Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"
IN_TREE = b"""[build-system]
requires = []
build-backend = "evil_backend"
backend-path = ["."]
"""


@pytest.fixture(params=["setup.py", "in-tree backend", "setuptools backend"])
def evil_sdist(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, Path]:
    """An sdist whose every script writes a marker: its sha256, its folder, the marker."""
    marker, shop = tmp_path / "executed", tmp_path / "shop"
    code = f"open({str(marker)!r}, 'w').close()\n".encode()
    members = {"PKG-INFO": PKG_INFO, "setup.py": code, "evil_backend.py": code}
    if request.param == "in-tree backend":
        members["pyproject.toml"] = IN_TREE
    if request.param == "setuptools backend":
        members["pyproject.toml"] = b'[build-system]\nrequires = ["setuptools"]\n'
    shop.mkdir()
    body = pack(shop / "evil-1.0.tar.gz", {f"evil-1.0/{n}": d for n, d in members.items()})
    return sha(body), shop, marker


needs_pip = pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed")


@pytest.fixture
def only_this_shop(evil_sdist: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(evil_sdist[1]))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@needs_pip
@pytest.mark.usefixtures("only_this_shop")
def test_a_malicious_sdist_arrives_without_running(
    evil_sdist: tuple[str, Path, Path], tmp_path: Path
) -> None:
    digest, shop, marker = evil_sdist
    wanted = asset(
        Source("pip", "evil==1.0", digest=digest), data=(shop / "evil-1.0.tar.gz").read_bytes()
    )
    report = fetch(wanted, tmp_path / "root")
    assert report.source == "pip evil==1.0"
    assert not marker.exists()


@needs_pip
@pytest.mark.usefixtures("only_this_shop")
@pytest.mark.parametrize("evil_sdist", ["in-tree backend"], indirect=True)
def test_the_malicious_sdist_does_run_under_a_plain_pip(
    evil_sdist: tuple[str, Path, Path], tmp_path: Path
) -> None:
    _, _, marker = evil_sdist
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "evil==1.0", "-d", str(tmp_path)], check=False, capture_output=True)
    assert marker.exists()


@needs_pip
@pytest.mark.usefixtures("only_this_shop")
@pytest.mark.parametrize("evil_sdist", ["setup.py"], indirect=True)
def test_pip_refuses_an_archive_of_another_hash(
    evil_sdist: tuple[str, Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=r"evil==1\.0 is not what its hash says"):
        fetch(asset(Source("pip", "evil==1.0", digest=sha(b"other"))), tmp_path / "root")
    assert not evil_sdist[2].exists()
    assert leftovers(tmp_path / "root") == []


def test_a_pip_source_without_a_hash_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(AssetUnavailable, match=r"must pin the sha256|pip is not installed"):
        fetch(asset(Source("pip", "evil==1.0")), tmp_path)


def test_a_missing_client_is_a_skipped_source(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sources = (Source("npm", "left@1"), Source("apt", "left"), url(server.address))
    skipped = fetch(asset(*sources), tmp_path).skipped
    assert [skip.reason for skip in skipped] == [
        "npm is not installed",
        "apt-get is not installed",
    ]
    assert skipped[0].remedy == "apt-get install npm"


def client(path: Path, name: str, script: str) -> None:
    """A program of that name which does what the real one does when asked the same."""
    path.mkdir(exist_ok=True)
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


def test_an_npm_package_is_packed_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    body = pack(tmp_path / "held.tgz", {"package/data.bin": BODY})
    client(
        tmp_path / "bin",
        "npm",
        f"echo noise; echo $* >{tmp_path}/said; cp {tmp_path}/held.tgz x.tgz",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    source = Source("npm", "held@1", unpack=f"{__name__}:unpack_package", digest=sha(body))
    assert (fetch(asset(source), tmp_path / "root").folder / "data.bin").read_bytes() == BODY
    assert (tmp_path / "said").read_text().startswith("pack --ignore-scripts ")
    assert capfd.readouterr().out == ""


def unpack_package(arrived: Path, target: Path) -> None:
    from harness_plugins.archives import members

    (target / "data.bin").write_bytes(members(arrived, ["package/data.bin"])["package/data.bin"])


def test_a_client_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path / "bin", "npm", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.setattr("harness.assets.clients.STALL", 0.3)
    with pytest.raises(AssetUnavailable, match="npm held@1: nothing arrived for"):
        fetch(asset(Source("npm", "held@1")), tmp_path / "root")


def test_apt_without_lists_says_to_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(tmp_path / "bin", "apt-get", 'echo "E: Unable to locate package x" >&2; exit 100')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(SourceFailed, match="run apt-get update") as caught:
        apt_download(Source("apt", "x"), work, lambda done, total: None)
    assert caught.value.remedy == "apt-get update"


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get is not installed")
def test_a_package_that_apt_does_not_know_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(AssetUnavailable, match="apt-get failed: E: "):
        fetch(asset(Source("apt", "no-such-package-anywhere")), tmp_path)


def ar(members: dict[str, bytes]) -> bytes:
    """An `ar` archive as dpkg-deb writes them."""
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    return out


def test_a_deb_gives_its_data_archive(tmp_path: Path) -> None:
    package = tmp_path / "x.deb"
    package.write_bytes(
        ar({"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": BODY})
    )
    assert data_archive(package).read_bytes() == BODY


@pytest.mark.parametrize("body", [b"PK\3\4", ar({"debian-binary": b"2.0\n"}), ar({"a": b""})[:-2]])
def test_what_is_no_deb_is_refused(body: bytes, tmp_path: Path) -> None:
    package = tmp_path / "x.deb"
    package.write_bytes(body)
    with pytest.raises(ValueError, match=r"Debian package|data archive"):
        data_archive(package)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_a_deb_of_dpkg_is_read(tmp_path: Path) -> None:
    from harness_plugins.archives import members

    (tmp_path / "p" / "DEBIAN").mkdir(parents=True)
    control = "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: x\n"
    (tmp_path / "p" / "DEBIAN" / "control").write_text(control)
    (tmp_path / "p" / "data.bin").write_bytes(BODY)
    built = tmp_path / "x.deb"
    subprocess.run(
        ["dpkg-deb", "-Zxz", "--build", tmp_path / "p", built], check=True, capture_output=True
    )
    assert members(data_archive(built), ["data.bin"]) == {"data.bin": BODY}


# ---------------------------------------------------------------- archives


def test_members_are_read_by_name_and_links_are_not_followed(tmp_path: Path) -> None:
    from harness_plugins.archives import members

    archive = tmp_path / "x.tar"
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("data.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(KeyError, match=r"x\.tar holds no data\.bin"):
        members(archive, ["data.bin"])


# ---------------------------------------------------------------- command line


@pytest.fixture
def shell(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> partial[Result]:
    """Runs `harness assets …` where one asset is known, and gives what it printed."""
    from harness.asking import registry
    from harness.cli.assets import command

    class OneAsset:
        def assets(self) -> dict[str, Asset]:
            return {"thing": asset(url(NOWHERE), url(server.address))}

    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "registry", OneAsset)
    return partial(CliRunner().invoke, command, catch_exceptions=True)


def test_fetch_then_where_then_list(shell: partial[Result], tmp_path: Path) -> None:
    assert json.loads(shell(["list", "--json"]).stdout)[0]["state"] == "not fetched"
    fetched = shell(["fetch", "thing"])
    assert fetched.exit_code == 0
    assert f"skipped url {NOWHERE}: not reachable" in fetched.stderr
    inside = str(tmp_path / "cache" / "assets" / "thing")
    assert shell(["where", "thing"]).stdout == f"{inside}\n"
    assert json.loads(shell(["list", "--json"]).stdout)[0]["folder"] == inside


def test_json_of_a_fetch_is_json_alone(shell: partial[Result]) -> None:
    (report,) = json.loads(shell(["fetch", "thing", "--json"]).stdout)
    assert report["source"].startswith("url http://127.0.0.1:")
    assert "not reachable" in report["skipped"][0]["reason"]


def test_a_misspelt_asset_names_the_nearest(shell: partial[Result]) -> None:
    assert "Did you mean 'thing'?" in str(shell(["where", "thong"]).exception)


def test_every_help_has_an_example(shell: partial[Result]) -> None:
    for words in ([], ["list"], ["fetch"], ["where"]):
        assert "harness assets " in shell([*words, "--help"]).stdout.split("Example")[1]
