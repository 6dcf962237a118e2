"""Confine this process, by the kernel's own means, to what a plugin needs: Linux alone has them.

Landlock (kernel 5.13) says which files may be read and written, which TCP ports may be used, and
that signals and abstract sockets stay inside. A seccomp filter takes away calls by which one
process reaches into another, or out of its namespaces. Neither needs root, nothing undoes them,
and whatever the process starts has them too.

Of the kernel's threads only the calling one is confined, so `confine` refuses where there is
another one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of Landlock's calls, on every processor."""
VERSION = 1
"""Flag: say which version of Landlock this kernel has."""
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_DIR, MAKE_REGULAR = 1 << 7, 1 << 8
TRUNCATE, IOCTL = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
WRITE = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR
"""In a folder: regular files and folders. Links, pipes, sockets and devices are made nowhere."""
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
"""What can be granted of a path that is no folder."""
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""By version, how many rights over files there are; later ones have as many."""
TCP = 0b11
"""To bind, and to connect; since version 4."""
SCOPES, SIGNALS_SINCE = 0b11, 6
"""Abstract sockets, and signals; since which version."""

NO_NEW_PRIVILEGES, CHILD_SUBREAPER = 38, 36
"""Options of `prctl`."""
SET_FILTER, ALL_THREADS = 1, 1
LOAD, EQUAL, AT_LEAST, ANY_BIT, KEEP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
"""Operations of the filter's machine: load a word, compare it with a number, cut it, end."""
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24
"""Where the call and its first arguments stand in what a filter is shown."""
STRAYS = 0x7E028080
"""Flags of `clone` by which new namespaces begin, or a child is another's."""
STREAM, PACKETS, LOCAL, KIND = 1, 5, 1, 0xF
"""Pairs of sockets that reach nobody else: of these kinds, of this family; bits of the kind."""
CAPABILITIES = 64
"""More than there are."""
DROP_CAPABILITY, CAPABILITY_VERSION = 24, 0x20080522
UNCONFINED = "HARNESS_UNCONFINED"
"""Where this variable of the environment is set, nothing is confined."""
LIMITS = {resource.RLIMIT_NOFILE: 4096, resource.RLIMIT_FSIZE: 1 << 34}
"""Open files of a process, and bytes of a file that it writes."""
OTHER_ABI = 0x40000000
"""Numbers from here on are of x32, whose calls the filter does not know."""


@dataclass(frozen=True)
class Machine:
    """What a filter has to know of a processor: its name, and the numbers of calls."""

    audit: int
    seccomp: int
    capset: int
    clone: int
    clone3: int
    prlimit: int
    socketpair: int
    refused: tuple[int, ...]


MACHINES = {
    "x86_64": Machine(
        audit=0xC000003E,
        seccomp=317,
        capset=126,
        clone=56,
        clone3=435,
        prlimit=302,
        socketpair=53,
        refused=(
            *(41, 101, 310, 311, 312),  # socket, ptrace, process_vm_readv and _writev, kcmp
            *(155, 161, 165, 166, 272, 308),  # pivot_root, chroot, mount, umount2, unshare, setns
            *(428, 429, 430, 431, 432, 433, 442),  # the newer ways to mount
            *(248, 249, 250, 298, 321, 323),  # three of keys, perf_event_open, bpf, userfaultfd
            *(169, 175, 176, 246, 313, 320),  # reboot, modules, kexec
            *(304, 425, 426, 427, 438),  # open_by_handle_at, three of io_uring, pidfd_getfd
            *(29, 30, 31, 67, 64, 65, 66, 220, 68, 69, 70, 71),  # memory, locks, queues by number
            *(240, 241, 242, 243, 244, 245),  # queues by name
            *(76, 90, 91, 268, 452, 92, 93, 94, 260),  # truncate by name, modes and owners
            *(132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 463, 466),  # times, attributes
            *(141, 142, 144, 314, 251),  # priorities
            *(170, 171, 164, 227, 305, 167, 168, 163, 103, 172, 173, 179),  # the machine's state
        ),
    ),
    "aarch64": Machine(
        audit=0xC00000B7,
        seccomp=277,
        capset=91,
        clone=220,
        clone3=435,
        prlimit=261,
        socketpair=199,
        refused=(
            *(198, 117, 270, 271, 272),
            *(41, 51, 40, 39, 97, 268),
            *(428, 429, 430, 431, 432, 433, 442),
            *(217, 218, 219, 241, 280, 282),
            *(142, 105, 106, 104, 273, 294),
            *(265, 425, 426, 427, 438),
            *range(180, 198),
            *(45, 52, 53, 452, 54, 55, 88, 5, 6, 7, 14, 15, 16, 463, 466),
            *(140, 118, 119, 274, 30),
            *(161, 162, 170, 112, 266, 224, 225, 89, 116, 60),
        ),
    ),
}


class NotConfined(OSError):
    """The process could not be confined as this kernel can."""


@dataclass(frozen=True)
class Walls:
    """What of confinement there is here: Landlock's version (0: none), and the filter."""

    landlock: int
    seccomp: bool

    @classmethod
    def here(cls) -> Walls:
        """What this machine gives."""
        if sys.platform != "linux":
            return cls(0, seccomp=False)
        return cls(max(0, _landlock_version()), platform.machine() in MACHINES)

    @property
    def stand(self) -> bool:
        """Whether a plugin is kept from files, from other processes and from networks."""
        return self.landlock > 0 and self.seccomp


def confine(reads: Iterable[str], writes: Iterable[str]) -> Walls:
    """Leave this process and all that it starts these paths, and no other process.

    What is not there is left out. NotConfined where there are other threads already, or where the
    kernel refuses what it has.
    """
    walls = Walls.here()
    if not (walls.landlock or walls.seccomp):
        return walls
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208  names, before any plugin is there
        raise NotConfined("another thread runs already, which would not be confined")
    _check(_libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    adopt()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for limit, most in LIMITS.items():
        _, hard = resource.getrlimit(limit)
        held = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (held, held))
    if platform.machine() in MACHINES:
        _drop_capabilities(MACHINES[platform.machine()])
    if walls.landlock:
        _restrict(walls.landlock, reads, writes)
    if walls.seccomp:
        _filter(MACHINES[platform.machine()])
    return walls


def adopt() -> None:
    """Become the parent of whatever outlives its own, of all that this process starts."""
    if sys.platform == "linux":
        _check(_libc().prctl(CHILD_SUBREAPER, 1, 0, 0, 0))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _drop_capabilities(machine: Machine) -> None:
    """Be root no more, where this process is."""
    for number in range(CAPABILITIES):
        _libc().prctl(DROP_CAPABILITY, number, 0, 0, 0)  # refused where there is none to drop
    header, none = struct.pack("Ii", CAPABILITY_VERSION, 0), bytes(24)
    _check(_libc().syscall(machine.capset, header, none))


def _landlock_version() -> int:
    return int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise NotConfined(code, f"this process cannot be confined: {os.strerror(code)}")
    return result


def _restrict(version: int, reads: Iterable[str], writes: Iterable[str]) -> None:
    """Let Landlock refuse all that is not beneath these paths."""
    handled = (1 << FILE_RIGHTS.get(version, 16)) - 1
    network, scopes = TCP * (version >= 4), SCOPES * (version >= SIGNALS_SINCE)
    told = struct.pack("QQQ", handled, network, scopes)
    size = 24 if version >= SIGNALS_SINCE else 16 if version >= 4 else 8
    rules = _check(_libc().syscall(CREATE_RULESET, told, ctypes.c_size_t(size), 0))
    for paths, rights in ((reads, READ), (writes, WRITE | TRUNCATE | IOCTL)):
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                _grant(rules, path, rights & handled)
    _check(_libc().syscall(RESTRICT_SELF, rules, 0))
    os.close(rules)


def _grant(rules: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not Path(path).is_dir():
        rights &= OF_FILES
    rule = struct.pack("=Qi", rights, beneath)
    _check(_libc().syscall(ADD_RULE, rules, PATH_BENEATH, rule, 0))
    os.close(beneath)


def _filter(machine: Machine) -> None:
    """Install the seccomp filter."""
    program = b"".join(struct.pack("HBBI", *step) for step in steps(machine))
    held = ctypes.create_string_buffer(program, len(program))
    told = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    _check(_libc().syscall(machine.seccomp, SET_FILTER, ALL_THREADS, told))


def steps(machine: Machine) -> Sequence[tuple[int, int, int, int]]:
    """The filter: operation, how far to jump if it holds and if it does not, number."""
    refuse = (RETURN, 0, 0, REFUSE | errno.EPERM)
    unknown = (RETURN, 0, 0, REFUSE | errno.ENOSYS)
    body = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, machine.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, OTHER_ABI),
        unknown,
        (EQUAL, 0, 1, machine.clone3),
        unknown,  # C libraries then ask by `clone`, whose flags can be seen
    ]
    allow = (RETURN, 0, 0, ALLOW)
    for number in machine.refused:
        body += [(EQUAL, 0, 1, number), refuse]
    own_child = [(LOAD, 0, 0, FIRST), (ANY_BIT, 0, 1, STRAYS), refuse, allow]
    own_limits = [(LOAD, 0, 0, FIRST), (EQUAL, 1, 0, 0), refuse, allow]
    own_pair = [
        *((LOAD, 0, 0, FIRST), (EQUAL, 0, 4, LOCAL)),
        *((LOAD, 0, 0, SECOND), (KEEP_BITS, 0, 0, KIND)),
        *((EQUAL, 2, 0, STREAM), (EQUAL, 1, 0, PACKETS), refuse, allow),
    ]
    for number, asked in (
        (machine.clone, own_child),
        (machine.prlimit, own_limits),
        (machine.socketpair, own_pair),
    ):
        body += [(EQUAL, 0, len(asked), number), *asked]
    return [*body, allow]
