"""What a hostile plugin would do in its process. Each deed raises where it is kept from it.

A job names the deed, and where things are that are none of its business.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Job = Mapping[str, Any]
CALLS = ctypes.CDLL(None, use_errno=True)
NOTHING, ATTACH, DETACH = 0, 16, 17
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000


def call(number: int, *arguments: Any) -> int:
    """A call of the kernel by its number on x86-64."""
    found = CALLS.syscall(number, *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def reads_the_cache(job: Job) -> None:
    """Records, images, answers: all of it lies there."""
    (Path(job["cache"]) / "records" / "secret").read_text()


def lists_the_cache(job: Job) -> None:
    os.listdir(job["cache"])


def poisons_the_cache(job: Job) -> None:
    (Path(job["cache"]) / "records" / "planted").write_text("{}")


def forges_a_pointer(job: Job) -> None:
    os.replace(Path(job["cache"]) / "cells" / "pointer", Path(job["cache"]) / "cells" / "other")


def reads_a_home(job: Job) -> None:
    (Path(job["home"]) / "key").read_text()


def reads_the_folder_of_another(job: Job) -> None:
    (Path(job["other"]) / "view").read_text()


def writes_beside_its_own(job: Job) -> None:
    (Path(job["base"]) / "planted").write_text("")


def changes_what_it_is_shown(job: Job) -> None:
    (Path(job["base"]) / "view").write_text("")


def reads_memory_of_its_parent(job: Job) -> None:
    with open(f"/proc/{job['parent']}/mem", "rb") as memory:
        memory.seek(int(open(f"/proc/{job['parent']}/maps").readline().split("-")[0], 16))
        memory.read(8)


def reads_the_environment_of_its_parent(job: Job) -> None:
    Path(f"/proc/{job['parent']}/environ").read_bytes()


def follows_the_folder_of_its_parent(job: Job) -> None:
    os.listdir(f"/proc/{job['parent']}/cwd/")


def opens_files_of_its_parent(job: Job) -> None:
    os.listdir(f"/proc/{job['parent']}/fd")


def traces_its_parent(job: Job) -> None:
    call(101, ATTACH, job["victim"], 0, 0)
    os.waitpid(job["victim"], 0) if job["victim"] == NOTHING else time.sleep(0.05)
    call(101, DETACH, job["victim"], 0, 0)


def copies_memory_of_its_parent(job: Job) -> None:
    there = int(open("/proc/self/maps").readline().split("-")[0], 16)
    held = ctypes.create_string_buffer(8)
    ours = struct.pack("PN", ctypes.addressof(held), 8)
    theirs = struct.pack("PN", there, 8)
    call(310, os.getpid(), ours, 1, theirs, 1, 0)


def takes_a_handle_of_its_parent(job: Job) -> None:
    held = call(434, job["parent"], 0)
    call(438, held, 0, 0)


def shares_memory_by_name(_job: Job) -> None:
    path = Path("/dev/shm") / f"redteam-{os.getpid()}"
    path.write_text("")
    path.unlink()


def connects(job: Job) -> None:
    socket.create_connection(("127.0.0.1", job["port"]), timeout=5).close()


def listens(_job: Job) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))


def sends_a_packet(job: Job) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sending:
        sending.sendto(b"leak", ("127.0.0.1", job["port"]))


def connects_to_a_socket_file(job: Job) -> None:
    with socket.socket(socket.AF_UNIX) as sending:
        sending.connect(job["socket"])


def connects_to_an_abstract_socket(job: Job) -> None:
    with socket.socket(socket.AF_UNIX) as sending:
        sending.connect("\0" + job["abstract"])


def signals_its_parent(job: Job) -> None:
    os.kill(job["parent"], NOTHING)


def leaves_a_pipe(job: Job) -> None:
    os.mkfifo(Path(job["out"]) / "pipe")


def leaves_a_link(job: Job) -> None:
    os.symlink("/dev/zero", Path(job["out"]) / "link")


def leaves_a_second_name(job: Job) -> None:
    os.link(Path(job["base"]) / "view", Path(job["out"]) / "second")


def leaves_a_socket(job: Job) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(Path(job["out"]) / "socket"))


def leaves_a_device(job: Job) -> None:
    os.mknod(Path(job["out"]) / "zero", 0o600 | 0o020000, os.makedev(1, 5))


def becomes_another_user_s_root(_job: Job) -> None:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        if status:
            raise PermissionError("unshare")
        return
    try:
        call(272, NEW_USER | NEW_NETWORK)
    except OSError:
        os._exit(1)
    os._exit(0)


def keeps_a_key(_job: Job) -> None:
    call(248, b"user", b"redteam", b"x", 1, -2)


def asks_the_kernel_to_read_for_it(_job: Job) -> None:
    os.close(call(425, 1, ctypes.create_string_buffer(120)))


def lets_a_child_do_it(job: Job) -> None:
    asked = f"open({str(Path(job['cache']) / 'records' / 'secret')!r}).read()"
    subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True)


def reads_a_secret_of_the_environment(_job: Job) -> None:
    os.environ["REDTEAM_TOKEN"]


def limits_its_parent(job: Job) -> None:
    resource.prlimit(job["victim"], resource.RLIMIT_CPU)


def leaves_memory_by_number(_job: Job) -> None:
    held = call(29, 0, 4096, 0o1600)
    call(31, held, 0, None)


def leaves_a_queue(_job: Job) -> None:
    call(240, b"redteam", os.O_CREAT | os.O_RDWR, 0o600, None)
    call(241, b"redteam")


def sends_by_a_pair(job: Job) -> None:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"leak", job["letterbox"])


def opens_a_file_to_all(job: Job) -> None:
    os.chmod(Path(job["home"]) / "key", 0o644)


def signs_a_file_by_its_time(job: Job) -> None:
    os.utime(Path(job["home"]) / "key", (1, 1))


def hides_a_child(_job: Job) -> None:
    child = call(56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if not child:
        os._exit(0)


def renames_the_machine(_job: Job) -> None:
    name = os.uname().nodename.encode()
    call(170, name, len(name))


PREVENTED = (
    *(reads_the_cache, lists_the_cache, poisons_the_cache, forges_a_pointer, reads_a_home),
    *(reads_the_folder_of_another, writes_beside_its_own, changes_what_it_is_shown),
    *(reads_memory_of_its_parent, reads_the_environment_of_its_parent),
    *(follows_the_folder_of_its_parent, opens_files_of_its_parent, traces_its_parent),
    *(copies_memory_of_its_parent, takes_a_handle_of_its_parent, shares_memory_by_name),
    *(connects, listens, sends_a_packet, connects_to_a_socket_file),
    *(connects_to_an_abstract_socket, signals_its_parent, leaves_a_pipe, leaves_a_link),
    *(leaves_a_second_name, leaves_a_socket, leaves_a_device, becomes_another_user_s_root),
    *(keeps_a_key, asks_the_kernel_to_read_for_it, lets_a_child_do_it),
    *(limits_its_parent, leaves_memory_by_number, leaves_a_queue, sends_by_a_pair),
    *(opens_a_file_to_all, signs_a_file_by_its_time, hides_a_child, renames_the_machine),
    reads_a_secret_of_the_environment,
)


def do(job: Job) -> None:
    """Do the deed that a job names."""
    by_name = {deed.__name__: deed for deed in PREVENTED}
    by_name[job["deed"]](job)
