"""A process that has imported torch, and whose children serve attacks without doing so again.

It is started afresh, as an attack's process is without it, and knows nothing but that one more is
wanted: it reads no view, loads no plugin and has never held the truth, so that what its children
begin with is torch as imported. Each child is a process of its own, in a session of its own. All
end when whoever started the nursery goes away.
"""

from __future__ import annotations

import os
import socket
import sys

STANDARD = 3
"""Streams that a child is given: what comes in, what goes out, its log."""


def main(number: int) -> None:
    """Start children until the parent hangs up; in a child, serve its jobs."""
    import torch  # noqa: F401  for all of them

    from harness.sandbox import jobs  # noqa: F401  likewise
    from harness.sandbox.__main__ import main as serve

    with socket.socket(fileno=number) as orders:
        born = _born(orders)
    if born:
        serve()


def _born(orders: socket.socket) -> bool:
    """Whether this is a child; False once no more are wanted."""
    while True:
        order, streams, *_ = socket.recv_fds(orders, 64, STANDARD)
        if not order:
            return False
        if order == b"start":
            child = os.fork()
            if not child:
                _settle(streams)
                return True
            for stream in streams:
                os.close(stream)
            orders.send(f"{child}\n".encode())
        else:
            _, status = os.waitpid(int(order), 0)
            orders.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _settle(streams: list[int]) -> None:
    """Make these the standard streams, and the process the first of its session."""
    os.setsid()
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)


if __name__ == "__main__":
    main(int(sys.argv[1]))
