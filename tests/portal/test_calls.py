"""Calls by the blocking engine: a question to a running process, asked without an event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure import BlockingEngine, Call, receive, workflow
from perdure.errors import CallRefused, CallUnanswered

LIMIT = 20.0


@workflow
async def scale() -> int:
    """Weigh what is brought, until it is nothing."""
    weighed = 0
    while (call := await receive("weigh", Call[str])).value:
        weighed += 1
        call.answer(len(call.value) if call.value.isascii() else ValueError("what is that?"))
    return weighed


def test_a_running_process_answers_code_without_an_event_loop(engine: BlockingEngine) -> None:
    handle = engine.start(scale.options(key="s"))
    assert handle.call("weigh", "anvil", int, key="k", timeout=LIMIT) == 5
    assert engine.process(handle.id).call("weigh", "anvil", int, key="k") == 5
    with pytest.raises(CallRefused, match="what is that"):
        handle.call("weigh", "Ω")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda n: handle.call("weigh", "x" * n), range(1, 9))) == list(range(1, 9))
    with pytest.raises(CallUnanswered):
        handle.call("weigh", "")
    assert handle.result(LIMIT) == 10
