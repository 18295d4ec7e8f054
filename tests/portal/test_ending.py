"""The end of a program that has not closed its engine: what is under way may end, and no attempt is used up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from perdure import BlockingEngine
from perdure.exhaustion import EXECUTORS, exhausted, exhausted_in_step
from perdure.runtime.main_thread_end import main_thread_end
from tests.portal import ending
from tests.portal.test_verbs import LIMIT
from tests.source import PYTHONPATH

BEGIN = """
import os, signal, sys, threading
from tests.portal import ending
from perdure import BlockingEngine, WorkerOptions
engine = BlockingEngine(sys.argv[1], work=True, workflows=[ending.adding], options=WorkerOptions(stop_seconds={stop}))
start = lambda: engine.start(ending.adding.options(key="A-1"), sys.argv[2], 1)
"""
ENDS = "start(); ending.begun.wait()"
SERVES = """
def serve():
    threading.main_thread().join()
    {served}
threading.Thread(target=serve).start()
"""
PRESSES = """
def press():
    main = threading.main_thread()
    while not (ending.main_has_ended() and waits(sys._current_frames()[main.ident])):
        threading.Event().wait(0.001)
    signal.pthread_kill(main.ident, signal.SIGINT)
waits = lambda frame: frame.f_code is threading.Condition.wait.__code__
signal.signal(signal.SIGINT, signal.default_int_handler)
ending.own.submit = lambda *_: threading.Event().wait()
threading.Thread(target=press, daemon=True).start()
start(); ending.begun.wait()
"""


def ended(url: str, code: str, how: str, stop: float = 3600.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-c", BEGIN.format(stop=stop) + code, url, how],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, ending.PROGRAM: "1", **environment},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip


def left(url: str) -> Any:
    """The process as the program has left it."""
    with BlockingEngine(url) as client:
        return client.handle(ending.adding, "A-1").status()


@pytest.mark.parametrize("how", ["loop", "executor", "thread"])
def test_a_step_that_is_under_way_has_its_threads_and_executors_until_it_has_ended(store_url: str, how: str) -> None:
    done = ended(store_url, ENDS, how)
    assert (left(store_url).status.value, done.stderr) == ("completed", "")
    with BlockingEngine(store_url) as client:
        assert client.handle(ending.adding, "A-1").result(LIMIT) == 2


def test_a_large_result_is_sealed_and_written_at_the_end_of_the_program(store_url: str) -> None:
    ended(store_url, ENDS, "report", PERDURE_SEAL="tests.portal.seal")
    assert left(store_url).status.value == "completed"


def test_while_other_threads_go_on_the_engine_works_for_them_though_the_main_thread_has_ended(store_url: str) -> None:
    done = ended(store_url, SERVES.format(served="print(start().result(60))"), "loop")
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_an_attempt_that_meets_an_executor_that_has_ended_with_the_main_thread_is_not_counted(store_url: str) -> None:
    served = "start()\n    while not engine.metrics()['attempts_put_off']: threading.Event().wait(0.001)"
    done = ended(store_url, "ending.own.submit(int)\n" + SERVES.format(served=served), "executor", stop=0.1)
    assert "short of executors" in done.stderr and "let that wait for all others" in done.stderr
    seen = left(store_url)
    assert (seen.status.value, seen.owner, seen.events) == ("running", None, 0)
    with BlockingEngine(store_url, work=True, workflows=[ending.adding]) as engine:
        assert engine.handle(ending.adding, "A-1").result(LIMIT) == 2


def test_ctrl_c_at_the_end_of_the_program_hands_back_what_is_under_way(store_url: str) -> None:
    done = ended(store_url, PRESSES, "thread")
    seen = left(store_url)
    assert (seen.status.value, seen.owner, done.stderr) == ("running", None, "")


def test_an_engine_that_was_closed_is_not_kept_for_the_end_of_the_program(store_url: str) -> None:
    before = list(main_thread_end._finishing)
    engine = BlockingEngine(store_url, migrate=True).open()
    assert main_thread_end._finishing == [*before, engine._finish]
    engine.close()
    assert main_thread_end._finishing == before


def test_an_executor_that_was_shut_down_while_the_program_goes_on_is_no_shortage() -> None:
    error = RuntimeError("cannot schedule new futures after shutdown")
    assert exhausted(error) is None and exhausted_in_step(error) is None


def test_an_executor_that_was_shut_down_by_the_end_of_the_program_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.exhaustion.program_ends", lambda: True)
    for text in (
        "cannot schedule new futures after shutdown", "cannot schedule new futures after interpreter shutdown",
        "can't register atexit after shutdown", "can't create new thread at interpreter shutdown",
    ):  # fmt: skip
        assert exhausted_in_step(RuntimeError(text)) == EXECUTORS
    assert exhausted(RuntimeError("cannot schedule the meeting")) is None
