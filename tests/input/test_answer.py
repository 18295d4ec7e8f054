"""Bad answers of steps, workflows and states: the step or the process fails, and the worker lives on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import set_state, workflow
from perdure.engine import Engine
from perdure.errors import PayloadError, PayloadTooLarge, ProcessFailed, StepError
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.limits import ERROR_TEXT_BYTES, PAYLOAD_BYTES
from tests.input.door import DEEP, LIMIT, nested

ROOM = PAYLOAD_BYTES - len('""')

MAKES: dict[str, tuple[Any, str, str]] = {
    "object": (object(), "PayloadError", "Use JSON values, dataclasses"),
    "nan": (float("nan"), "PayloadError", "Use None or a text instead."),
    "infinity": ([float("inf")], "PayloadError", "Use None or a text instead."),
    "surrogate": ("\ud800", "PayloadError", "Decode its source with errors='replace'"),
    "deep": (nested(DEEP), "PayloadError", "Flatten it"),
    "number for a key": ({1: 1}, "PayloadError", "Use str(key)"),
    "oversized": ("x" * (ROOM + 1), "PayloadTooLarge", "pass a reference"),
}
"""What is made on demand: the value, and the error and the advice that it earns."""


@step(retry=Retry.NONE)
async def make(what: str) -> Any:
    return MAKES[what][0]


@step(retry=Retry.NONE)
def make_in_a_thread(what: str) -> Any:
    return MAKES[what][0]


@step(retry=Retry.NONE)
async def count(what: str) -> int:
    return what  # type: ignore[return-value]


@step(retry=Retry.NONE)
async def fill(size: int) -> str:
    return "x" * size


@workflow(name="input/ask")
async def ask(what: str, threaded: bool = False) -> str:
    try:
        await (make_in_a_thread(what) if threaded else make(what))
    except StepError as error:
        return f"{error.step} {error.type} {error.attempts}: {error}"
    return "never"


@workflow(name="input/miscount")
async def miscount() -> str:
    try:
        await count("seven")
    except StepError as error:
        return f"{error.type}: {error}"
    return "never"


@workflow(name="input/fill")
async def filled(size: int) -> int:
    return len(await fill(size))


@workflow(name="input/give")
async def give(what: str) -> Any:
    return MAKES[what][0]


@workflow(name="input/give_text")
async def give_text(size: int) -> str:
    return "x" * size


@workflow(name="input/give_wrong")
async def give_wrong() -> int:
    return "seven"  # type: ignore[return-value]


@workflow(name="input/show")
async def show(what: str) -> str:
    set_state("good")
    try:
        set_state(MAKES[what][0])
    except (PayloadError, PayloadTooLarge) as error:
        return f"{type(error).__name__}: {error}"
    return "never"


@workflow(name="input/show_text")
async def show_text(size: int) -> str:
    set_state("x" * size)
    return "shown"


@workflow(name="input/hand_over")
async def hand_over(what: str) -> str:
    await make(MAKES[what][0])
    return "never"


FLOWS = (ask, miscount, filled, give, give_text, give_wrong, show, show_text, hand_over)


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    """An engine that is found alive and without broken processes after each test."""
    async with Engine(store_url, work=True, workflows=FLOWS) as engine:
        yield engine
        last = await engine.start(filled, 3)
        assert await last.result(LIMIT) == 3
        statuses = {status for counts in (await engine.count()).values() for status in counts}
        assert statuses <= {Status.COMPLETED, Status.FAILED}


async def test_a_step_result_that_cannot_be_stored_fails_that_step(engine: Engine) -> None:
    for what, (_, kind, advice) in MAKES.items():
        for threaded, name in ((False, "make"), (True, "make_in_a_thread")):
            handle = await engine.start(ask, what, threaded)
            text = await handle.result(LIMIT)
            assert text.startswith(f"{name} {kind} 1: ")
            assert advice in text
            types = [event.type.name for event in await engine.process(handle.id).history()]
            assert types == ["STEP_FAILED", "COMPLETED"]


async def test_a_step_result_of_the_wrong_type_fails_that_step(engine: Engine) -> None:
    text = await (await engine.start(miscount)).result(LIMIT)
    assert text.startswith("PayloadError: ")
    assert "Correct the value" in text


async def test_a_step_result_is_accepted_up_to_exactly_its_limit(engine: Engine) -> None:
    for size in (ROOM - 1, ROOM):
        assert await (await engine.start(filled, size)).result(LIMIT) == size
    with pytest.raises(ProcessFailed, match=r"PayloadTooLarge.*pass a reference"):
        await (await engine.start(filled, ROOM + 1)).result(LIMIT)


async def test_a_workflow_result_that_cannot_be_stored_fails_the_process(engine: Engine) -> None:
    for what, (_, kind, advice) in MAKES.items():
        handle = await engine.start(give, what)
        with pytest.raises(ProcessFailed) as failed:
            await handle.result(LIMIT)
        assert (failed.value.type, advice in str(failed.value)) == (kind, True), what
        assert (await handle.status()).status is Status.FAILED


async def test_a_workflow_result_of_the_wrong_type_fails_the_process(engine: Engine) -> None:
    with pytest.raises(ProcessFailed, match="Correct the value"):
        await (await engine.start(give_wrong)).result(LIMIT)


async def test_a_workflow_result_is_accepted_up_to_exactly_its_limit(engine: Engine) -> None:
    for size in (ROOM - 1, ROOM):
        assert len(await (await engine.start(give_text, size)).result(LIMIT)) == size
    with pytest.raises(ProcessFailed, match="pass a reference") as failed:
        await (await engine.start(give_text, ROOM + 1)).result(LIMIT)
    assert failed.value.type == "PayloadTooLarge"


async def test_a_state_that_cannot_be_stored_is_refused_where_it_is_set(engine: Engine) -> None:
    for what, (_, kind, advice) in MAKES.items():
        handle = await engine.start(show, what)
        text = await handle.result(LIMIT)
        assert (text.startswith(f"{kind}: "), advice in text) == (True, True), text
        assert (await handle.status()).state == "good"


async def test_a_state_is_accepted_up_to_exactly_its_limit(engine: Engine) -> None:
    for size in (ROOM - 1, ROOM):
        handle = await engine.start(show_text, size)
        assert await handle.result(LIMIT) == "shown"
        assert len((await handle.status()).state) == size
    with pytest.raises(ProcessFailed, match="pass a reference"):
        await (await engine.start(show_text, ROOM + 1)).result(LIMIT)


async def test_a_step_asked_for_with_bad_arguments_fails_the_process_and_never_runs(engine: Engine) -> None:
    for what, (_, kind, advice) in MAKES.items():
        handle = await engine.start(hand_over, what)
        with pytest.raises(ProcessFailed) as failed:
            await handle.result(LIMIT)
        assert failed.value.type == kind
        assert advice in str(failed.value)
        assert [event.type for event in await engine.process(handle.id).history()] == [EventType.FAILED]


@step(retry=Retry.NONE)
async def shout(letter: int, times: int) -> None:
    raise RuntimeError(chr(letter) * times)


@workflow(name="input/shouted")
async def shouted(letter: int, times: int) -> None:
    await shout(letter, times)


@workflow(name="input/cry")
async def cry(letter: int, times: int) -> None:
    raise RuntimeError(chr(letter) * times)


@pytest.mark.parametrize("letter", [0x78, 0xE9, 0, 0xD800, 0x1F600], ids=hex)
async def test_an_error_text_of_100_kb_is_cut_to_4_kib(engine: Engine, letter: int) -> None:
    for flow in (shouted, cry):
        handle = await engine.start(flow, letter, 100_000)
        with pytest.raises(ProcessFailed) as failed:
            await handle.result(LIMIT)
        assert ERROR_TEXT_BYTES - 16 < len(failed.value.detail.encode()) <= ERROR_TEXT_BYTES
        for event in await engine.process(handle.id).history():
            said = Failure.decode(event.payload or b"").message
            assert len(said.encode()) <= ERROR_TEXT_BYTES
            assert "\0" not in said
