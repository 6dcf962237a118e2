"""What is done next, what waits, and what a failure takes with it."""

from __future__ import annotations

import pytest

from harness.scheduling.queue import LOST_AT_MOST, Outcome, Queue
from harness.scheduling.steps import Graph, Task

pytestmark = pytest.mark.core

DONE = Outcome(status="done")
FAILED = Outcome(status="failed", error="no luck")


def task(name: str, *needs: str, shares: str = "") -> Task:
    return Task(id=name, step="attack", options={}, needs=needs, shares=frozenset(shares.split()))


def queue(*tasks: Task) -> Queue:
    graph = Graph()
    graph.add(tasks)
    return Queue(graph)


def end(line: Queue, name: str, outcome: Outcome = DONE) -> list[str]:
    """The names of all that ended with a task."""
    return [each.id for each, _ in line.end(line.running[name], outcome)]


def started(line: Queue, *, patient: bool = False) -> list[str]:
    """All that can be started now."""
    found = []
    while chosen := line.next(patient=patient):
        found.append(chosen.id)
    return found


def test_a_task_waits_for_all_that_it_needs() -> None:
    line = queue(task("release"), task("train"), task("record", "release", "train"))
    assert started(line) == ["release", "train"]
    end(line, "release")
    assert started(line) == []
    end(line, "train")
    assert started(line) == ["record"]
    end(line, "record")
    assert line.over


def test_tasks_start_in_the_order_of_their_cells() -> None:
    line = queue(task("release"), task("one", "release"), task("other"))
    assert started(line) == ["release", "other"]
    end(line, "release")
    assert started(line) == ["one"]


def test_a_failure_takes_with_it_what_waits_for_it_however_far() -> None:
    line = queue(task("release"), task("attack", "release"), task("record", "attack"), task("far"))
    assert started(line) == ["release", "far"]
    assert end(line, "release", FAILED) == ["release", "attack", "record"]
    assert end(line, "far") == ["far"]
    assert line.over


def test_those_that_fall_with_a_task_have_its_outcome() -> None:
    line = queue(task("release"), task("record", "release"))
    started(line)
    outcomes = [outcome for _, outcome in line.end(line.running["release"], FAILED)]
    assert outcomes == [FAILED, FAILED]


def test_what_makes_the_same_thing_does_not_run_side_by_side_if_there_is_else_to_do() -> None:
    line = queue(task("a", shares="unet"), task("b", shares="unet"), task("c"))
    assert [line.next(), line.next()] == [line.running["a"], line.running["c"]]
    waits_for_a_lock = line.next()
    assert waits_for_a_lock == line.running["b"]


def test_a_patient_engine_lets_it_wait_until_it_is_made() -> None:
    line = queue(task("a", shares="unet"), task("b", shares="unet"), task("c", shares="unet"))
    assert started(line, patient=True) == ["a"]
    end(line, "a")
    assert started(line, patient=True) == ["b", "c"]


def test_a_task_whose_process_was_lost_goes_first() -> None:
    line = queue(task("a"), task("b"), task("c"))
    lost = line.next()
    assert lost
    assert list(line.lose(lost, "killed")) == []
    assert started(line) == ["a", "b", "c"]


def test_a_task_that_loses_every_process_fails_with_their_last_words() -> None:
    line = queue(task("bomb"), task("record", "bomb"))
    ended = []
    for _ in range(LOST_AT_MOST):
        assert ended == []
        bomb = line.next()
        assert bomb
        ended = list(line.lose(bomb, "Segmentation fault"))
    assert [each.id for each, _ in ended] == ["bomb", "record"]
    assert {outcome.status for _, outcome in ended} == {"failed"}
    message = "the process at work on it was lost 3 times\nSegmentation fault"
    assert ended[0][1].error == message
    assert line.over


def test_what_is_done_already_is_neither_run_nor_waited_for() -> None:
    graph = Graph()
    graph.add([task("release"), task("record", "release")], done={"release"})
    assert started(Queue(graph)) == ["record"]


def test_cells_share_their_steps() -> None:
    graph = Graph()
    graph.add([task("release"), task("one", "release")])
    graph.add([task("release"), task("other", "release")])
    assert list(graph.tasks) == ["release", "one", "other"]
