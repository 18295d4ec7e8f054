"""An engine that is asked from workflow code: refused before anything is written, with what to write instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from tests.input.door import LIMIT

here: list[Engine] = []
ID = "01a2072a-dfed-7cdf-87cd-fe2b8b05c96a"


@workflow(name="turn/inner")
async def inner(n: int) -> int:
    return n


ASKED: dict[str, Callable[[Engine], Awaitable[Any]]] = {
    "start": lambda engine: engine.start(inner, 1),
    "start by name": lambda engine: engine.start("turn/elsewhere", 1),
    "start_many": lambda engine: engine.start_many(inner, [(1,)]),
    "handle": lambda engine: engine.handle(inner, "A-1"),
    "result": lambda engine: engine.process(ID).result(),
    "status": lambda engine: engine.process(ID).status(),
    "signal": lambda engine: engine.process(ID).signal("word"),
    "call": lambda engine: engine.process(ID).call("word"),
    "cancel": lambda engine: engine.process(ID).cancel(),
    "list": lambda engine: engine.list(),
    "count": lambda engine: engine.count(),
}


@workflow(name="turn/outer")
async def outer(verb: str) -> str:
    await ASKED[verb](here[0])
    return "it was answered"


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True, workflows=[inner, outer]) as engine:
        here.append(engine)
        yield engine
        here.clear()


@pytest.mark.parametrize("verb", ASKED)
async def test_an_engine_that_is_asked_from_workflow_code_refuses_and_says_what_to_write(
    engine: Engine, verb: str
) -> None:
    handle = await engine.start(outer, verb)
    with pytest.raises(ProcessFailed, match=r"called from workflow code.*order\.child\(\.\.\.\).*engine in a step"):
        await handle.result(LIMIT)
    assert (await engine.count()).get("turn/inner") is None
