"""The log: what failed is told once with its stack, an outage once, and what workflow code says is said once."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import pytest

from perdure import receive, set_state
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessBroken, ProcessFailed, StoreRegressed, StoreUnavailable
from perdure.kernel.retry import Retry
from perdure.logs import JsonLines
from perdure.loop import Outage
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until, until_row

shop = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def _all_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def records(caplog: pytest.LogCaptureFixture, name: str, level: int) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == f"perdure.{name}" and one.levelno == level]


async def the_record(caplog: pytest.LogCaptureFixture, name: str, level: int) -> logging.LogRecord:
    """The only such record. A client may read the end in the store before the worker hears of it, and logs it."""
    await until(lambda: records(caplog, name, level))
    (only,) = records(caplog, name, level)
    return only


@step(retry=Retry(attempts=2, first=0.001))
async def charge(card: str) -> None:
    raise ConnectionError(f"no answer for {card}")


@workflow
async def paying(card: str) -> None:
    await charge(card)


async def test_a_failed_process_and_the_last_attempt_of_its_step_are_told_once_with_their_stacks(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[paying])
    handle = await engine.start(paying.options(key="A-17"), "4111")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    failed = await the_record(caplog, "process", logging.ERROR)
    tried = await the_record(caplog, "step", logging.INFO)
    spent = await the_record(caplog, "step", logging.ERROR)
    assert "attempt 1" in tried.getMessage() and "Traceback" not in tried.getMessage()
    assert "ConnectionError: no answer for 4111" in spent.getMessage() and "in charge" in spent.getMessage()
    assert "StepError" in failed.getMessage() and "in paying" in failed.getMessage()
    expected: dict[str, Any] = {"process_id": handle.id, "process_kind": "paying", "process_key": "A-17"}
    assert {name: getattr(failed, name) for name in expected} == expected
    expected |= {"step": "charge", "attempt": 2}
    assert {name: getattr(spent, name) for name in expected} == expected


@step(queue="bank", retry=Retry.NONE)
async def transfer() -> None:
    raise ConnectionError("closed")


@workflow
async def transferring() -> None:
    await transfer()


async def test_a_failed_task_is_told_as_its_step(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = await opened(work=True, workflows=[transferring])
    with pytest.raises(ProcessFailed):
        await (await engine.start(transferring)).result(LIMIT)
    assert "process transferring" in (await the_record(caplog, "process", logging.ERROR)).getMessage()
    assert "ConnectionError: closed" in (await the_record(caplog, "step", logging.ERROR)).getMessage()


class Refused(Exception):
    pass


@step(raises=Refused, retry=Retry(never=Refused))
async def ask_for_credit() -> None:
    raise Refused("no")


@workflow
async def asking_for_credit() -> None:
    with suppress(Refused):
        await ask_for_credit()


async def test_an_answer_that_a_step_declares_is_no_error_of_the_log(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[asking_for_credit])
    await (await engine.start(asking_for_credit)).result(LIMIT)
    assert "Refused: no" in (await the_record(caplog, "step", logging.WARNING)).getMessage()


@workflow
async def misbehaving() -> None:
    await receive("go")
    await asyncio.get_running_loop().run_in_executor(None, print)


async def test_a_broken_process_is_told_once(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = await opened(work=True, workflows=[misbehaving])
    handle = await engine.start(misbehaving)
    await handle.signal("go")
    with pytest.raises((ProcessBroken, ProcessFailed)):
        await handle.result(LIMIT)
    assert "in misbehaving" in (await the_record(caplog, "process", logging.ERROR)).getMessage()


@workflow
async def talking() -> int:
    for n in range(3):
        print(f"said {n}")
        shop.warning("logged %d", n)
        set_state({"heard": n})
        await receive("go")
    return 3


async def test_what_workflow_code_prints_and_logs_is_not_repeated_by_its_replays(
    opened: Open, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, _ = await opened(work=True, workflows=[talking], options=WorkerOptions(cached=0))  # every turn is a replay
    handle = await engine.start(talking)
    for _ in range(3):
        await until_row(engine, handle.id, lambda row: row.owner is None and row.due_at is not None)
        await handle.signal("go")
    assert await handle.result(LIMIT) == 3
    assert capsys.readouterr().out.split("\n") == ["said 0", "said 1", "said 2", ""]
    assert [one.getMessage() for one in caplog.records if one.name == "shop"] == ["logged 0", "logged 1", "logged 2"]


async def test_what_workflow_code_says_first_is_heard_also_of_a_process_that_was_started_elsewhere(
    opened: Open, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    client, _ = await opened(workflows=[talking])
    handle = await client.start(talking)
    engine, _ = await opened(work=True, workflows=[talking], options=WorkerOptions(cached=0))
    for _ in range(3):
        await until_row(engine, handle.id, lambda row: row.owner is None and row.opened_at is not None)
        await handle.signal("go")
    assert await handle.result(LIMIT) == 3
    assert capsys.readouterr().out.split("\n") == ["said 0", "said 1", "said 2", ""]
    assert [one.getMessage() for one in caplog.records if one.name == "shop"] == ["logged 0", "logged 1", "logged 2"]


async def test_an_outage_of_the_database_is_told_once_and_its_end_once(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, store = await opened(work=True, workflows=[talking])
    asked = 0

    async def away(door: str, argument: Any) -> None:
        nonlocal asked
        asked += 1
        raise StoreUnavailable("the server is gone")

    usual = store.before
    store.before = store.after = away  # what is asked already is not answered either
    starting = asyncio.create_task(engine.start(talking))
    await until(lambda: asked > 3)
    store.before = store.after = usual
    await asyncio.wait_for(starting, LIMIT)
    told = [one.getMessage() for one in caplog.records if "the database" in one.getMessage()]
    assert len(told) == 2
    assert "does not answer" in told[0] and "the server is gone" in told[0]
    assert "answers again, after" in told[1]
    assert not [one for one in caplog.records if "the server is gone" in one.getMessage()][1:]


def test_what_is_found_of_a_fail_over_is_told_though_the_database_is_away_already(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage(lambda: 7.0)
    for error in (StoreUnavailable("gone"), StoreRegressed("an old primary"), StoreUnavailable("still gone")):
        outage.began(error)
        outage.began(error)
    outage.ended()
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 3 and told[1] == "an old primary"
    assert "gone" in told[0] and "answers again" in told[2]


def test_a_record_as_json_is_one_line_with_its_fields() -> None:
    record = logging.makeLogRecord(
        {
            "name": "perdure.step",
            "levelname": "WARNING",
            "msg": "%s\nbroke",
            "args": ("it",),
            "created": 0.5,
            "step": "a",
        }
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["level"], told["logger"], told["step"]) == (
        "it\nbroke",
        "warning",
        "perdure.step",
        "a",
    )
    assert told["time"] == "1970-01-01T00:00:00.500+00:00" and "attempt" not in told
