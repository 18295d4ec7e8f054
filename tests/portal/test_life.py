"""The life of a blocking engine: opening, closing, Ctrl-C, the end of the program, and where it refuses to work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure import BlockingEngine, Engine, PerdureError, ProcessFailed, WorkerOptions, errors
from tests.portal import shop
from tests.portal.test_verbs import LIMIT
from tests.source import PYTHONPATH

UNCLOSED = """
import sys
from tests.portal import shop
from perdure import BlockingEngine, WorkerOptions
engine = BlockingEngine(sys.argv[1], work=True, options=WorkerOptions(stop_seconds=0.1))
print(engine.start(shop.lasting.options(key="A-1")).status().owner is not None)
{end}
"""


async def until(engine: Engine, true: Callable[[Engine], Any]) -> None:
    """Let the engine's event loop turn until something has happened."""
    async with asyncio.timeout(LIMIT):
        while not true(engine):
            await asyncio.sleep(0.001)


def waited_for(engine: Engine) -> int:
    """How many processes somebody waits for."""
    return len(engine.parts.results._waiters)


def interrupt_once(engine: BlockingEngine, true: Callable[[Engine], Any]) -> threading.Thread:
    """Press Ctrl-C as soon as something is true of the engine and the main thread waits."""
    opened, thread, main = engine._engine, engine._thread, threading.main_thread().ident
    assert opened is not None and thread is not None and main is not None

    def waiting(opened: Engine) -> Any:
        return true(opened) and sys._current_frames()[main].f_code is threading.Condition.wait.__code__

    def press() -> None:
        thread.ask(until(opened, waiting)).result()
        signal.pthread_kill(main, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    return pressing


def test_ctrl_c_in_a_wait_leaves_nothing_behind(engine: BlockingEngine) -> None:
    handle = engine.start(shop.order, "A-1")
    pressing = interrupt_once(engine, waited_for)
    with pytest.raises(KeyboardInterrupt):
        handle.result()
    pressing.join()
    engine.run(until, lambda opened: not waited_for(opened))
    handle.signal("paid", "Ann")
    assert handle.result(LIMIT) == "receipt A-1 by Ann"


def test_tests_that_press_ctrl_c_hold_though_whoever_started_them_ignores_it() -> None:
    name = f"{__file__}::{test_ctrl_c_in_a_wait_leaves_nothing_behind.__name__}"
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name, "-k", "sqlite"]
    done = subprocess.run(command, preexec_fn=ignore, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout


def test_ctrl_c_while_closing_hands_back_what_is_under_way(store_url: str) -> None:
    engine = BlockingEngine(store_url, work=True, options=WorkerOptions(stop_seconds=3600)).open()
    handle = engine.start(shop.lasting)
    engine.run(until, lambda opened: opened.worker and opened.worker.scheduler.agent._running)
    pressing = interrupt_once(engine, lambda opened: opened._draining is not None)
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    pressing.join()
    engine.close()
    with BlockingEngine(store_url, migrate=True) as client:
        seen = client.process(handle.id).status()
        assert (seen.owner, seen.deaths) == (None, 0)


def test_whoever_still_waits_is_told_that_the_engine_was_closed(store_url: str) -> None:
    engine = BlockingEngine(store_url, migrate=True).open()
    handle = engine.start(shop.order, "A-1")
    begun = threading.Event()

    async def never(opened: Engine) -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(handle.result), threads.submit(engine.run, never)]
        engine.run(until, waited_for)
        begun.wait(LIMIT)
        engine.close()
        for one in waiting:
            with pytest.raises(PerdureError, match="the engine was closed"):
                one.result(LIMIT)


def test_a_closed_engine_refuses_and_closes_again_in_vain(store_url: str) -> None:
    with BlockingEngine(store_url, migrate=True) as engine:
        handle = engine.start(shop.order, "A-1")
    engine.close()
    for call in (engine.open, engine.count, handle.status, handle.result):
        with pytest.raises(PerdureError, match="make another one"):
            call()
    assert not [thread for thread in threading.enumerate() if thread.name == "perdure portal"]


def test_closing_what_was_never_opened_does_nothing(store_url: str) -> None:
    BlockingEngine(store_url, migrate=True).close()


def test_an_opening_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    engine = BlockingEngine(f"sqlite:///{tmp_path}/folder/shop.db", workflows=[shop.order], migrate=True)
    for call in (engine.open, engine.count):
        with pytest.raises(errors.StoreError, match="folder"):
            call()
    (tmp_path / "folder").mkdir()
    assert engine.count() == {}
    assert engine.start("order", "A-1").created
    engine.close()


def test_an_engine_whose_opening_failed_can_be_closed(tmp_path: Path) -> None:
    engine = BlockingEngine(f"sqlite:///{tmp_path}/folder/shop.db", migrate=True)
    with pytest.raises(errors.StoreError):
        engine.open()
    engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "perdure portal"]
    with pytest.raises(errors.InvalidUrl):
        BlockingEngine("nonsense").open()


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "1 / 0"])
def test_the_end_of_the_program_closes_it(store_url: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED.format(end=end), store_url],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONWARNINGS": "error"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "True\n", done.stderr
    assert ("ZeroDivisionError" in done.stderr) if end == "1 / 0" else done.stderr == ""

    async def workers(opened: Engine) -> list[Any]:
        return list(await opened.store.workers(ended=True))

    with BlockingEngine(store_url, migrate=True) as engine:
        [worker] = engine.run(workers)
        assert worker.ended_at is not None and not worker.died
        assert engine.process(engine.handle("lasting", "A-1").id).status().owner is None


async def test_it_refuses_to_block_an_event_loop(store_url: str) -> None:
    engine = BlockingEngine(store_url, migrate=True)
    for call in (engine.open, engine.count, engine.__enter__):
        with pytest.raises(PerdureError, match="use Engine there"):
            call()
    await asyncio.to_thread(engine.count)
    with pytest.raises(PerdureError, match="use Engine there"):
        engine.close()
    await asyncio.to_thread(engine.close)


def test_a_workflow_may_not_call_it_but_a_step_may(engine: BlockingEngine) -> None:
    shop.PORTALS.append(engine)
    try:
        with pytest.raises(ProcessFailed, match="in a workflow: inside a step"):
            engine.start(shop.blocking).result(LIMIT)
        assert engine.start(shop.submitting, "A-1").result(LIMIT) == "receipt A-1"
    finally:
        shop.PORTALS.clear()
