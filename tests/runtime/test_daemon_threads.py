"""Threads that end with the program whatever hangs in them: calls are made in order, and each has its answer."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from perdure import futures
from perdure.futures import DaemonThreads
from perdure.runtime import os_process
from tests.runtime.conftest import LIMIT
from tests.runtime.test_shortages import refused_threads

NAME = "perdure trial"


@pytest.fixture
def door() -> Iterator[threading.Event]:
    """What hangs waits for it; it is open after the test."""
    door = threading.Event()
    yield door
    door.set()


@pytest.fixture
def two() -> Iterator[DaemonThreads]:
    """Two threads."""
    threads = DaemonThreads(2, NAME)
    yield threads
    threads.shutdown()


def alive(name: str = NAME) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_as_many_calls_are_made_at_once_as_there_are_threads_and_the_others_in_order(
    two: DaemonThreads, door: threading.Event
) -> None:
    both, made = threading.Barrier(3, timeout=LIMIT), list[int]()
    hung = two.submit(lambda: (both.wait(), door.wait())), two.submit(both.wait)
    both.wait()
    for number in range(100):
        two.submit(made.append, number)
    two.submit(int).result(LIMIT)
    assert made == [*range(100)], "the other thread has made them all"
    assert len(alive()) == 2 and all(thread.daemon for thread in alive())
    assert not hung[0].done()


def test_what_a_call_raises_is_its_answer_and_its_thread_makes_the_next_one(two: DaemonThreads) -> None:
    with pytest.raises(ZeroDivisionError):
        two.submit(lambda: 1 / 0).result(LIMIT)
    with pytest.raises(SystemExit):
        two.submit(sys.exit).result(LIMIT)
    assert two.submit(max, 3, 4).result(LIMIT) == 4


def test_a_thread_without_a_call_ends_after_a_while(two: DaemonThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "IDLE_SECONDS", 0.01)
    two.submit(int).result(LIMIT)
    for thread in alive():
        thread.join(LIMIT)
    assert alive() == []
    assert two.submit(max, 3, 4).result(LIMIT) == 4, "another takes its place"


def test_a_call_for_which_the_system_refuses_a_thread_is_refused_and_never_made(two: DaemonThreads) -> None:
    made: list[int] = []
    with refused_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        two.submit(made.append, 1)
    two.submit(made.append, 2).result(LIMIT)
    assert made == [2]


def test_at_the_end_nothing_is_waited_for_and_nothing_begins(two: DaemonThreads, door: threading.Event) -> None:
    begun = threading.Barrier(3, timeout=LIMIT)
    hung = [two.submit(lambda: (begun.wait(), door.wait())) for _ in range(2)]
    begun.wait()
    waits = two.submit(int)
    two.shutdown(wait=True)
    assert not any(future.done() for future in hung)
    with pytest.raises(CancelledError):
        waits.result(LIMIT)
    with pytest.raises(RuntimeError, match="after shutdown"):
        two.submit(int)
    door.set()
    for thread in alive():
        thread.join(LIMIT)
    assert alive() == [] and all(future.done() for future in hung)


def test_a_call_that_hangs_in_an_event_loop_of_ours_does_not_keep_it_from_its_end(door: threading.Event) -> None:
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        door.wait()

    async def main() -> str:
        call = asyncio.create_task(asyncio.to_thread(hang))
        while not begun.is_set():
            await asyncio.sleep(0)
        call.cancel()
        return "over"

    ended: list[str] = []
    program = threading.Thread(target=lambda: ended.append(os_process.run(main())), daemon=True)
    program.start()
    program.join(LIMIT)
    assert ended == ["over"]
