"""Tasks on a Ray cluster: Ray says which node does what, the store's folder is shared by all."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

from harness.api.errors import UsageError
from harness.running.run import Step
from harness.sandbox.process import limited_to
from harness.scheduling.local import NotingObserver, do_step
from harness.scheduling.queue import Ended, Outcome, Queue, TaskProgress
from harness.scheduling.steps import Graph, Task, tasks_of
from harness.store.paths import ENVIRONMENT, scratch_folder

LOOK_EVERY = 1.0
"""Seconds between two looks at what running tasks note."""
HABITS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Started here, Ray neither tells of its use nor makes way for whatever else runs."""
ANSWERS_WITHIN = 10.0
"""Seconds in which a cluster has to be reached."""
AHEAD = 2
"""Tasks handed to the cluster for each CPU it has: those that wait there go on at once."""


class Cluster:
    """A Ray cluster at an address, or one on this machine while the context lasts.

    `root` is the store's folder, which every node must see under the same name.
    """

    def __init__(self, address: str | None, root: Path) -> None:
        self.address = address
        self.root = root
        self._running: dict[Any, Task] = {}
        self._functions: dict[tuple[int, bool], Any] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Cluster:
        with ExitStack() as opened:
            opened.enter_context(_connected(self.address))
            scratch = opened.enter_context(scratch_folder(self.root, "cluster"))
            self._token = scratch / token_hex(16)  # a name that nobody else's folder has
            self._token.touch()
            self._notes = _open_notes()
            self._ending = opened.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.close()

    def run(self, graph: Graph, progress: TaskProgress) -> Iterator[Ended]:
        """Do all tasks, as an `Engine`; UsageError where no node is large enough for one."""
        import ray

        _check_room(graph.tasks.values())
        queue = Queue(graph)
        while not queue.over:
            self._hand_out(queue)
            ready, _ = ray.wait(list(self._running), timeout=LOOK_EVERY, fetch_local=False)
            for reference in ready:
                yield from self._conclude(queue, reference)
            self._pass_on(progress)

    def _hand_out(self, queue: Queue) -> None:
        """As many tasks as keep every node busy; the first in the graph's order."""
        import ray

        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while len(self._running) < most and (task := queue.next(patient=True)):
            work = self._function(task.threads, task.accelerated)
            order = (task.id, task.step, dict(task.options), str(self._token))
            self._running[work.remote(*order, self._notes)] = task

    def _function(self, threads: int, accelerated: bool) -> Any:
        """`work` with what it needs of a node. A lost one is given out anew here, not by Ray."""
        import ray

        key = (threads, accelerated)
        if key not in self._functions:
            hidden = {} if accelerated else {"CUDA_VISIBLE_DEVICES": ""}
            variables = {**limited_to(threads), **hidden, ENVIRONMENT: str(self.root)}
            self._functions[key] = ray.remote(
                num_cpus=threads,
                num_gpus=int(accelerated),
                max_retries=0,
                runtime_env={"env_vars": variables},
            )(work)
        return self._functions[key]

    def _conclude(self, queue: Queue, reference: Any) -> Iterator[Ended]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        task = self._running.pop(reference)
        try:
            outcome = Outcome.model_validate(ray.get(reference))
        except RayTaskError as error:  # not lost: it came to a node that cannot do it
            message = f"A node of the cluster cannot do '{task.title}': {error}"
            outcome = Outcome(status="fatal", error=message, kind="UsageError")
        except RayError as error:
            yield from queue.lose(task, str(error))
            return
        yield from queue.end(task, outcome)

    def _pass_on(self, progress: TaskProgress) -> None:
        """What running tasks have noted since the last time."""
        import ray
        from ray.exceptions import RayError

        try:
            notes = ray.get(self._notes.take.remote(), timeout=LOOK_EVERY)
        except RayError:
            return
        for task in self._running.values():
            if task.id in notes:
                progress(task, notes[task.id])


def work(name: str, step: Step, options: dict[str, Any], token: str, notes: Any) -> dict[str, Any]:
    """One task on a node of the cluster; its outcome as JSON values."""

    def note(words: str) -> None:
        notes.put.remote(name, f"{platform.node()}: {words}")

    if fault := _unfit(name, options, Path(token)):
        outcome = Outcome(status="fatal", error=fault, kind="UsageError")
    else:
        outcome = do_step(step, options, NotingObserver(note))
    return outcome.model_dump(mode="json")


def _unfit(name: str, options: Mapping[str, Any], token: Path) -> str:
    """Why this node's results would not be those that were asked for, if so."""
    from harness.asking.plan import plan
    from harness.asking.registry import registry
    from harness.asking.request import make_request
    from harness.running.run import equip
    from harness.store import cache_root

    here = f"The cluster's node {platform.node()}"
    root = cache_root()
    if not token.exists():
        return (
            f"{here} does not see {root} as it is where the run was started: set {ENVIRONMENT} to "
            "a folder that all nodes share, under one name."
        )
    cell = equip(plan(make_request(**options), registry()), root)
    if name in {task.id for task in tasks_of(cell, options)}:
        return ""
    return (
        f"{here} would make other results than were asked for: it must have the same versions of "
        "harness, plugins and packages, and the same kind of device, as where the run was started."
    )


class Notes:
    """What running tasks are doing, in their own words; an actor of its own."""

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}

    def put(self, name: str, words: str) -> None:
        """Keep a task's note, in place of the one before."""
        self._latest[name] = words

    def take(self) -> dict[str, str]:
        """The last note of each task since the last time, by the task's id."""
        latest, self._latest = self._latest, {}
        return latest


def _open_notes() -> Any:
    """Notes kept on this machine, which the run does not outlive anyway."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Notes).remote()


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Ray at an address, or started here without a dashboard; with reports of its use off."""
    if find_spec("ray") is None:
        raise UsageError(
            "--engine ray needs Ray, and it is not installed: "
            "pip install 'encoding-harness[cluster]'"
        )
    if address is not None:
        _check_address(address)
    for name, value in HABITS.items():
        os.environ.setdefault(name, value)
    import ray

    started = {"include_dashboard": False} if address is None else {}
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what Ray's next versions will do
        try:
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **started)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"There is no Ray cluster to use at '{address}': {error}") from None
    with redirect_stdout(sys.stderr):  # Ray says there that a node was lost, some of it at the end
        try:
            yield
        finally:
            ray.shutdown()


def _check_address(address: str) -> None:
    """UsageError unless somebody answers there: Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not (host and port.isdigit()):
        raise UsageError(f"'{address}' is no address of a Ray cluster: give host:port, or auto.")
    try:
        socket.create_connection((host, int(port)), ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"There is no Ray cluster to use at '{address}': {error}.") from None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our way of ending on a signal: Ray brings its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _check_room(tasks: Iterable[Task]) -> None:
    """UsageError unless each task fits on some node."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for threads, accelerated in {(task.threads, task.accelerated) for task in tasks}:
        fits = (n.get("CPU", 0) >= threads and n.get("GPU", 0) >= accelerated for n in nodes)
        if not any(fits):
            wanted = f"{threads} CPUs{' and a GPU' if accelerated else ''}"
            raise UsageError(
                f"No node of the cluster has {wanted}, which one task takes: start one that has, "
                "or give fewer --threads."
            )
