"""Steps with a transaction whose process is cancelled, retried, restarted or told by a person, on both stores."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessBroken, ProcessCancelled, ProcessFailed
from perdure.kernel.event import EventType
from tests.runtime.account import (
    FLOWS,
    Account,
    answers,
    awaited,
    booked_and_done,
    booked_beside,
    booked_unheard,
    booking,
    cancelled,
    changing,
    events,
    fail,
    fail_once,
    hooks,
    lingering,
    sound,
    trip,
    turned,
)
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def test_a_step_that_failed_for_good_leaves_nothing_and_its_retry_runs_under_its_old_key(
    engine: Engine, account: Account
) -> None:
    keys: list[str] = []
    hooks["a"] = lambda: fail(ValueError("no"))
    handle = await engine.start(booking, account.kind, "a")
    with pytest.raises(ProcessFailed, match="no"):
        await handle.result(LIMIT)
    assert await account.booked() == []
    hooks.clear()
    await handle.retry()
    assert await handle.result(LIMIT) == "A"
    keys = [key for (key,) in await account.run("SELECT key FROM booking")]
    assert keys == [f"{handle.id}/1/book:1"]
    await sound(engine, handle.id_bytes)


async def test_a_cancelled_step_is_rolled_back(engine: Engine, account: Account) -> None:
    release, reached = threading.Event(), threading.Event()

    def hang() -> Any:
        reached.set()
        return release.wait(LIMIT) if account.kind == "sqlite" else asyncio.Event().wait()

    hooks["a"] = hang
    handle = await engine.start(booking, account.kind, "a")
    await until(reached.is_set)
    await cancelled(engine, handle)
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    release.set()
    assert await account.booked() == []
    await sound(engine, handle.id_bytes)


async def test_rule_23_what_was_cancelled_is_rolled_back_before_its_undo_begins(
    engine: Engine, account: Account
) -> None:
    release, reached = threading.Event(), threading.Event()
    seen: list[str] = []

    def hang() -> Any:
        reached.set()
        return release.wait(LIMIT) if account.kind == "sqlite" else lingering(seen)

    async def look() -> None:
        seen.append("undone")

    hooks["b"] = hang
    hooks["unb"] = look if account.kind == "postgres" else lambda: seen.append("undone")
    handle = await engine.start(trip, account.kind, ["a", "b"])
    await until(reached.is_set)
    await cancelled(engine, handle)
    if account.kind == "sqlite":
        seen.append("ended")
        release.set()
    with pytest.raises(ProcessCancelled) as ended:
        await handle.result(LIMIT)
    assert seen == ["ended", "undone"]
    assert ended.value.undone == ("reserve:2", "reserve:1")
    assert await account.booked() == ["a", "una", "unb"]
    await sound(engine, handle.id_bytes)


async def test_rule_19_a_result_for_other_arguments_breaks_the_process_with_both_sides_shown(
    opened: Open, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    handle = await booked_unheard(first, monkeypatch, changing, account.kind, "a")
    await first.close(0)
    answers["changed"] = "b"
    second, _ = await opened(work=True, workflows=FLOWS)
    with pytest.raises(ProcessBroken, match="result of step 'book' at place 1 for other arguments"):
        await second.process(handle.id).result(timeout=LIMIT)
    assert await account.booked() == ["a"]
    answers.clear()
    await second.process(handle.id).retry()
    assert await second.process(handle.id).result(timeout=LIMIT) == "A"
    assert await account.booked() == ["a"]
    await sound(second, handle.id_bytes)


async def second_run(engine: Engine, handle: Any) -> None:
    """Wait for the end of a process's second run."""
    await until_row(engine, handle.id, lambda row: row.final and row.run == 2)


async def test_a_restart_from_the_step_runs_it_again_under_a_new_key(engine: Engine, account: Account) -> None:
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    await handle.restart_from("book")
    await second_run(engine, handle)
    assert await account.booked() == ["a", "a"]
    assert await account.keys() == 2, "its effect is wanted again"
    [ignored] = await events(engine, handle.id, EventType.ANSWER_IGNORED)
    assert ignored.message == 1
    await sound(engine, handle.id_bytes)


async def test_a_restart_runs_it_again_and_ignores_the_old_result(engine: Engine, account: Account) -> None:
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    await handle.restart()
    await second_run(engine, handle)
    assert await account.booked() == ["a", "a"]
    assert await account.keys() == 2
    await sound(engine, handle.id_bytes)


async def test_a_retry_after_a_later_failure_keeps_effect_and_result(engine: Engine, account: Account) -> None:
    hooks["b"] = lambda: fail(ValueError("no"))
    handle = await engine.start(booked_and_done, account.kind, "a", "b")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    hooks["b"] = lambda: "done"
    await handle.retry()
    assert await handle.result(LIMIT) == ["A", "done"]
    assert await account.booked() == ["a"]
    await sound(engine, handle.id_bytes)


async def kept_by_a_restart(engine: Engine, account: Account, handle: Handle[Any]) -> None:
    """Restarted from its other step, the process has what was booked before, and books it no second time."""
    hooks["b"] = lambda: "twice"
    await handle.restart_from("plainly")
    await second_run(engine, handle)
    assert await handle.result(LIMIT) == ["A", "twice"]
    assert await account.booked() == ["a"]
    await sound(engine, handle.id_bytes)


async def test_a_restart_from_a_later_step_keeps_effect_and_result(engine: Engine, account: Account) -> None:
    hooks["b"] = lambda: "once"
    handle = await engine.start(booked_and_done, account.kind, "a", "b")
    assert await handle.result(LIMIT) == ["A", "once"]
    await kept_by_a_restart(engine, account, handle)


async def test_a_restart_keeps_effect_and_result_of_what_ran_beside(engine: Engine, account: Account) -> None:
    later = threading.Event()

    hooks["b"] = lambda: "once"
    hooks["a"] = lambda: later.wait(LIMIT) if account.kind == "sqlite" else turned(later)
    handle = await engine.start(booked_beside, account.kind, "a", "b")
    await until(lambda: awaited(engine, handle) == ["book"])
    later.set()
    assert await handle.result(LIMIT) == ["A", "once"]
    done = await events(engine, handle.id, EventType.STEP_COMPLETED)
    assert [event.name for event in done] == ["plainly", "book"]
    await kept_by_a_restart(engine, account, handle)


async def test_a_result_by_hand_takes_the_place_of_one_that_never_came(engine: Engine, account: Account) -> None:
    hooks["a"] = lambda: fail(ValueError("no"))
    handle = await engine.start(booking, account.kind, "a")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.set_result("book", "by hand")
    assert await handle.result(LIMIT) == "by hand"
    assert await account.booked() == []
    await sound(engine, handle.id_bytes)


async def test_what_is_undone_is_undone_in_a_transaction_too(engine: Engine, account: Account) -> None:
    hooks["unb"] = fail_once(ConnectionError("later"))
    hooks["c"] = lambda: fail(ValueError("no"))
    handle = await engine.start(trip, account.kind, ["a", "b", "c"])
    with pytest.raises(ProcessFailed) as failed:
        await handle.result(LIMIT)
    assert failed.value.undone == ("reserve:3", "reserve:2", "reserve:1")
    assert await account.booked() == ["a", "b", "una", "unb", "unc"]
    await sound(engine, handle.id_bytes)
