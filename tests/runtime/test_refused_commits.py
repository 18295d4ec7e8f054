"""A commit that the committer does not take: nobody will answer it, and its process is not held for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import step, workflow
from perdure.engine import Engine
from perdure.errors import ProcessBroken
from perdure.futures import OnAnswer
from perdure.kernel.commit import Commit
from perdure.kernel.process import Status
from tests.runtime.conftest import LIMIT, Open


@step(queue="refused")
async def pay(cents: int) -> int:
    """A queued step, whose start goes out with a commit."""
    return cents


@workflow
async def order() -> int:
    """Asks for it."""
    return await pay(1299)


def refuse(engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception, wanted: Callable[[], bool]) -> None:
    """The engine's committer raises the error, as long as it is wanted, for each commit with a start."""
    committer = engine.committer
    taken = committer.commit

    def commit(commit: Commit, answered: OnAnswer) -> None:
        if commit.starts and wanted():
            raise error
        taken(commit, answered)

    monkeypatch.setattr(committer, "commit", commit)


async def test_a_process_whose_commit_the_committer_does_not_take_is_parked_and_may_be_retried(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[order])
    wrong = [True]
    refuse(engine, monkeypatch, LookupError("no place for this"), lambda: bool(wrong))
    handle = await engine.start(order)
    with pytest.raises(ProcessBroken, match="no place for this"):
        await handle.result(LIMIT)
    assert (await handle.status()).status is Status.BROKEN
    wrong.clear()
    await handle.retry(who="Ann")
    assert await handle.result(LIMIT) == 1299


async def test_a_process_whose_commit_is_not_taken_for_want_of_memory_is_put_off(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.SHORTAGE_WAIT_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=[order])
    left = [1, 2]
    refuse(engine, monkeypatch, MemoryError(), lambda: bool(left and left.pop()))
    assert await (await engine.start(order)).result(LIMIT) == 1299
    assert (left, engine.telemetry.counters["processes_put_off"]) == ([], 2)
