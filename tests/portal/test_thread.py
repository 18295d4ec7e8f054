"""The thread of a blocking engine: it outlives code that would end the program; where it is not there, calls say so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure import BlockingEngine, PerdureError, errors, limits
from tests.portal import shop
from tests.portal.test_verbs import LIMIT

PORTAL = "perdure portal"


def portals() -> list[threading.Thread]:
    """The threads of blocking engines."""
    return [thread for thread in threading.enumerate() if thread.name == PORTAL]


def refusing(patch: pytest.MonkeyPatch, times: int) -> None:
    """Have the system refuse the thread of an engine so many times."""
    start, left = threading.Thread.start, [times]

    def started(thread: threading.Thread) -> None:
        if thread.name == PORTAL and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    patch.setattr(threading.Thread, "start", started)


def test_a_call_for_which_the_system_refuses_the_thread_says_so_and_the_next_one_tries_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, times=2)
    engine = BlockingEngine(store_url, migrate=True)
    for call in (engine.count, engine.open):
        with pytest.raises(errors.StoreUnavailable, match=r"refuses this program a thread.*call again"):
            call()
    assert portals() == []
    assert engine.count() == {}
    engine.close()
    assert portals() == []


def test_an_engine_that_got_no_thread_can_be_closed(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, times=1)
    engine = BlockingEngine(store_url, migrate=True)
    with pytest.raises(errors.StoreUnavailable):
        engine.count()
    engine.close()


def test_a_task_of_a_step_that_wants_to_end_the_program_ends_neither_it_nor_the_engine(engine: BlockingEngine) -> None:
    assert engine.start(shop.left).result(LIMIT).endswith("SystemExit: a step may not end its worker")
    assert engine.start(shop.order_paid, "A-1").result(LIMIT) == "receipt A-1"


def test_if_the_thread_ends_all_the_same_that_is_logged_and_every_call_says_so(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = BlockingEngine(store_url, work=True, workflows=[shop.lasting]).open()
    handle = engine.start(shop.lasting)
    thread = engine._thread
    assert thread is not None

    def broken(*_: Any) -> Any:
        raise OSError("the descriptor is gone")

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(handle.result)
        thread.loop._selector.select = broken  # type: ignore[attr-defined]
        thread.loop.call_soon_threadsafe(bool)
        with pytest.raises(PerdureError, match=r"thread of this engine has ended.*make another engine"):
            waiting.result(LIMIT)
    thread.join()
    for call in (engine.count, handle.status, engine.open):
        with pytest.raises(PerdureError, match=r"thread of this engine has ended.*the descriptor is gone"):
            call()
    engine.close()
    [told] = [
        one for one in caplog.records if one.levelno == logging.ERROR and "thread of an engine" in one.getMessage()
    ]
    assert told.exc_info is not None


@pytest.fixture
def _let_go() -> Iterator[None]:
    """What hangs in the shop is let go after the test."""
    shop.DOOR.clear()
    yield
    shop.DOOR.set()


@pytest.mark.usefixtures("_let_go")
def test_a_call_that_hangs_in_a_thread_of_the_event_loop_keeps_no_engine_from_its_end(store_url: str) -> None:
    engine = BlockingEngine(store_url, work=True, workflows=[shop.hanging])
    assert engine.start(shop.hanging).result(LIMIT) == "given up"
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    closing.join(LIMIT)
    assert not closing.is_alive()
    assert portals() == []
    assert [thread for thread in threading.enumerate() if thread.name.startswith("perdure loop")], "it hangs still"


@pytest.mark.usefixtures("_let_go")
def test_a_task_that_does_not_end_is_left_behind_when_an_engine_is_closed_and_that_is_said(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "END_GRACE_SECONDS", 0.05)
    engine = BlockingEngine(store_url, work=True, workflows=[shop.untidy])
    engine.start(shop.untidy).result(LIMIT)
    engine.close()
    assert [record for record in caplog.records if "is left behind" in record.getMessage()]
    [thread] = portals()
    shop.DOOR.set()
    thread.join(LIMIT)
    assert portals() == []
