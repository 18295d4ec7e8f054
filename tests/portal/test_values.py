"""Published values by the blocking engine: the last one, a stream for an ordinary ``for``, a signal with the start."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure import BlockingEngine, publish, receive, workflow
from perdure.errors import NothingPublished, PerdureError
from perdure.kernel.message import SendVerdict

LIMIT = 20.0


@workflow
async def bell() -> int:
    """Ring as often as it is told to."""
    rung = 0
    while await receive("ring", bool):
        rung += 1
        publish("rung", rung)
    return rung


def test_values_are_read_and_followed_without_an_event_loop(engine: BlockingEngine) -> None:
    handle = engine.start(bell.options(key="b", signal=("ring", True)))
    assert (handle.created, handle.sent) == (True, SendVerdict.DELIVERED)
    assert engine.start(bell.options(key="b", signal=("ring", True))).sent is SendVerdict.DELIVERED
    assert handle.value("rung", int, wait=LIMIT) in (1, 2)
    assert engine.process(handle.id).value("other", default=0) == 0
    with pytest.raises(NothingPublished):
        handle.value("other")
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(lambda: list(handle.values("rung", int)))
        handle.signal("ring", True)
        handle.signal("ring", False)
        assert handle.result(LIMIT) == 3
        assert following.result(LIMIT) == [1, 2, 3]
    stream = engine.process(handle.id).values("rung")
    assert next(stream) == 1
    assert (stream.run, stream.name) == (1, "rung")
    assert list(engine.process(handle.id).values("rung", after=stream.number, run=stream.run)) == [2, 3]
    stream.close()
    assert list(stream) == []


def test_a_stream_that_nobody_follows_to_its_end_is_let_go(engine: BlockingEngine) -> None:
    handle = engine.start(bell.options(key="b", signal=("ring", True)))
    for value in handle.values("rung"):
        assert value == 1
        break
    gc.collect()
    handle.signal("ring", False)
    assert handle.result(LIMIT) == 1


def test_a_stream_of_a_closed_engine_says_so(sqlite_url: str) -> None:
    engine = BlockingEngine(sqlite_url, work=True, workflows=[bell])
    handle = engine.start(bell.options(key="b"))
    stream = handle.values("rung")
    engine.close()
    with pytest.raises(PerdureError, match="closed"):
        next(stream)
