"""Hard steps: what runs in a cell is told alike, and really ends: at its deadline, when taken back, with its worker."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import BlockingEngine, limits
from perdure.authoring.step import step
from perdure.engine import Engine
from perdure.errors import DefinitionError, ProcessCancelled, ProcessFailed
from perdure.runtime.options import WorkerOptions
from tests.runtime import hard
from tests.runtime.conftest import LIMIT, Open, until

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""For what happens above the store."""

ALL = [
    hard.answers, hard.beats, hard.cleans, hard.cleans_async, hard.crashes, hard.crashes_once, hard.greed, hard.holds,
    hard.hurries, hard.knows, hard.looks, hard.noise, hard.numbers, hard.packs, hard.reports, hard.times_out,
    hard.yields,
]  # fmt: skip


class Fifo:
    """What a step holds open: tells when it has begun, and when all that it was is gone."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self.file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self.file, True)

    async def begun(self) -> int:
        """Wait for the number of the cell in which the step runs."""
        readable, _, _ = await asyncio.to_thread(select.select, [self.file], [], [], LIMIT)
        assert readable, "nobody has opened it"
        return int(os.read(self.file, 100))

    async def gone(self) -> None:
        """Wait until nobody holds it any more: neither the cell nor what it has started."""
        async with asyncio.timeout(LIMIT):
            assert await asyncio.to_thread(os.read, self.file, 100) == b""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingEngine]:
    """A worker with its cell, for the steps that leave both as they were."""
    url = f"sqlite:///{tmp_path_factory.mktemp('cells')}/perdure.db"
    with BlockingEngine(url, work=True, workflows=[*ALL, hard.waits_by_error]) as engine:
        yield engine


@pytest.fixture
def fifo(tmp_path: Path) -> Fifo:
    return Fifo(tmp_path / "fifo")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


async def worker(opened: Open, cells: int = limits.STEP_CELLS) -> Engine:
    engine, _ = await opened(work=True, workflows=ALL, options=WorkerOptions(cells=cells))
    return engine


def counted(engine: Engine) -> dict[str, float]:
    figures = engine.metrics()
    return {name: figures[f"cells_{name}"] for name in ("started", "killed", "crashed")}


async def failures(engine: Engine, id: str) -> list[str]:
    return [repr(event.payload) for event in await engine.process(id).history() if event.type.name.endswith("FAILED")]


# -- alike -------------------------------------------------------------------------------------------------------------


async def test_arguments_and_results_of_a_hard_step_are_typed_async_or_not(opened: Open) -> None:
    engine = await worker(opened)
    handle = await engine.start(hard.packs)
    assert await handle.result(LIMIT) == hard.Parcel("ANVIL+FLUTE", 9301)


def test_a_hard_step_knows_its_attempt_and_its_key_like_any_other(shared: BlockingEngine) -> None:
    handle = shared.start(hard.knows.options(key="A-1"))
    *told, number = handle.result(LIMIT)
    assert told == [2, "known", "knows", "A-1", handle.id, f"{handle.id}/1/known:1"]
    assert number != os.getpid()


def test_a_hard_step_waits_as_its_error_wants(shared: BlockingEngine) -> None:
    assert shared.start(hard.waits_by_error).result(LIMIT) == 3


async def test_whatever_a_hard_step_says_or_raises_is_told_and_retried_like_that_of_any_other(opened: Open) -> None:
    engine = await worker(opened)
    for what in (
        "an object", "another type", "too much", "exit", "permanent", "refused", "time", "group", "cancelled", "a text",
    ):  # fmt: skip
        soft, hardened = await (await engine.start(hard.answers, what)).result(LIMIT)
        assert hardened == soft, what
    assert counted(engine) == {"started": 1, "killed": 0, "crashed": 0}


def test_heartbeats_from_a_cell_start_its_time_anew(shared: BlockingEngine) -> None:
    assert shared.start(hard.beats).result(LIMIT) == "alive, True"
    assert shared.metrics()["step_timeouts"] == 0


@pytest.mark.parametrize("crash", [False, True])
async def test_the_next_attempt_knows_what_a_crashed_cell_reported_last(opened: Open, crash: bool) -> None:
    engine = await worker(opened)
    handle = await engine.start(hard.reports, crash)
    assert await handle.result(LIMIT) == ([20, 30] if crash else [None, 10])


@on_sqlite
async def test_what_a_hard_step_writes_goes_out_and_never_between_its_words(opened: Open, capfd: Any) -> None:
    engine = await worker(opened)
    assert await (await engine.start(hard.noise)).result(LIMIT) == "heard"
    await engine.close()
    out, err = capfd.readouterr()
    assert "to stdout" in out and "hello" in out
    assert "to stderr" in err and err.count("y") >= 300_000


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_at_its_deadline_a_cell_is_killed_with_all_that_it_started_even_while_it_holds_the_interpreters_lock(
    opened: Open, fifo: Fifo
) -> None:
    engine = await worker(opened)
    handle = await engine.start(hard.times_out, fifo.path)
    assert await fifo.begun() != os.getpid()
    assert await handle.result(LIMIT) == "TimeoutError"
    await fifo.gone()
    assert await (await engine.start(hard.packs)).result(LIMIT), "its worker goes on, with another cell"
    assert counted(engine) == {"started": 2, "killed": 1, "crashed": 0}
    row = await engine.row(handle.id)
    assert row.deaths == 0


async def test_a_cancelled_hard_step_may_clean_up_before_its_cell_ends(
    opened: Open, fifo: Fifo, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_GRACE_SECONDS", LIMIT)
    engine = await worker(opened)
    handle = await engine.start(hard.cleans, fifo.path, str(ledger))
    await fifo.begun()
    await handle.cancel(who="anna")
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    await fifo.gone()
    assert ledger.read_text() == "cleaned"


@on_sqlite
async def test_a_cancelled_async_hard_step_gets_a_cancelled_error_at_its_await(
    opened: Open, fifo: Fifo, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_GRACE_SECONDS", LIMIT)
    engine = await worker(opened)
    handle = await engine.start(hard.cleans_async, fifo.path, str(ledger))
    await fifo.begun()
    await handle.cancel(who="anna")
    await fifo.gone()
    assert ledger.read_text() == "cleaned asynchronously"


@on_sqlite
async def test_a_cancelled_hard_step_that_does_not_end_is_killed_after_its_grace(
    opened: Open, fifo: Fifo, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_GRACE_SECONDS", 5.0)
    engine = await worker(opened)
    handle = await engine.start(hard.cleans, fifo.path, str(ledger), True)
    await fifo.begun()
    await handle.cancel(who="anna")
    await fifo.gone()
    assert ledger.read_text() == "cleaned"
    assert counted(engine) == {"started": 1, "killed": 1, "crashed": 0}
    assert engine.metrics()["late_results"] == 0


async def test_a_terminated_process_has_its_cell_killed_at_once(opened: Open, fifo: Fifo) -> None:
    engine = await worker(opened)
    handle = await engine.start(hard.holds, fifo.path)
    await fifo.begun()
    await handle.terminate(who="anna")
    await fifo.gone()


async def test_a_worker_that_stops_leaves_no_cell_behind(opened: Open, fifo: Fifo) -> None:
    engine = await worker(opened)
    idle = (await (await engine.start(hard.numbers, 2, True)).result(LIMIT))[0]
    handle = await engine.start(hard.holds, fifo.path)
    busy = await fifo.begun()
    await engine.close(0)
    for number in (idle, busy):
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    await fifo.gone()
    assert handle.id


# -- crashes -----------------------------------------------------------------------------------------------------------


@on_sqlite
async def test_a_crash_is_a_failed_attempt_that_tells_how_and_its_last_words(opened: Open) -> None:
    engine = await worker(opened)
    for how, told in {
        "segfault": "was killed by SIGSEGV", "kill": "was killed by SIGKILL", "exit": "ended with exit code 3",
    }.items():  # fmt: skip
        handle = await engine.start(hard.crashes, how)
        assert await handle.result(LIMIT) == 2
        [found] = await failures(engine, handle.id)
        assert "StepCrashed" in found and told in found and "its last words" in found
        assert (await engine.row(handle.id)).deaths == 0
    assert counted(engine) == {"started": 4, "killed": 0, "crashed": 3}


@on_sqlite
async def test_of_a_hard_step_that_runs_at_most_once_a_crash_leaves_the_end_unknown(opened: Open) -> None:
    engine = await worker(opened)
    said = await (await engine.start(hard.crashes_once)).result(LIMIT)
    assert "not known whether it was done" in said
    assert "ended with exit code 3" in said, "its first attempt, and its only one"
    assert counted(engine) == {"started": 1, "killed": 0, "crashed": 1}


@on_sqlite
async def test_a_hard_step_over_its_memory_limit_fails_with_a_text_that_says_so_and_is_retried(opened: Open) -> None:
    engine = await worker(opened)
    handle = await engine.start(hard.greed, 2)
    assert await handle.result(LIMIT) == 2**20
    [found] = await failures(engine, handle.id)
    assert "MemoryError" in found and "its limit of 200 MiB" in found
    with pytest.raises(ProcessFailed, match="limit of 200 MiB"):
        await (await engine.start(hard.greed, 9)).result(LIMIT)


def test_when_memory_runs_out_the_kernel_takes_a_cell_before_its_worker(shared: BlockingEngine) -> None:
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    assert shared.start(hard.yields).result(LIMIT) == min(ours + 500, 1000)


# -- the pool ----------------------------------------------------------------------------------------------------------


@on_sqlite
async def test_a_cell_is_used_again_and_no_more_are_started_than_allowed(opened: Open) -> None:
    engine = await worker(opened, cells=2)
    assert len(set(await (await engine.start(hard.numbers, 5)).result(LIMIT))) == 1
    assert len(set(await (await engine.start(hard.numbers, 12, True)).result(LIMIT))) == 2
    assert counted(engine) == {"started": 2, "killed": 0, "crashed": 0}


@on_sqlite
async def test_a_cell_is_replaced_after_so_many_calls(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CELL_CALLS", 2)
    engine = await worker(opened)
    one, two, three = await (await engine.start(hard.numbers, 3)).result(LIMIT)
    assert one == two != three
    assert counted(engine) == {"started": 2, "killed": 0, "crashed": 0}


@on_sqlite
async def test_a_cell_that_nobody_needs_any_more_ends(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CELL_IDLE_SECONDS", 0.01)
    engine = await worker(opened)
    (number,) = await (await engine.start(hard.numbers, 1)).result(LIMIT)

    def gone() -> bool:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        return False

    await until(gone)
    assert await (await engine.start(hard.numbers, 1)).result(LIMIT) != [number]


@on_sqlite
async def test_a_cell_that_dies_while_it_is_idle_costs_no_attempt(opened: Open) -> None:
    engine = await worker(opened)
    (number,) = await (await engine.start(hard.numbers, 1)).result(LIMIT)
    os.kill(number, signal.SIGKILL)
    handle = await engine.start(hard.numbers, 1)
    assert await handle.result(LIMIT) != [number]
    assert await failures(engine, handle.id) == []


@on_sqlite
async def test_a_step_taken_back_before_it_began_leaves_its_cell_to_the_next(opened: Open) -> None:
    engine = await worker(opened, cells=1)
    assert await (await engine.start(hard.hurries)).result(LIMIT) < 0
    assert counted(engine) == {"started": 1, "killed": 0, "crashed": 0}
    assert engine.metrics()["steps"] == 1


@on_sqlite
async def test_a_cell_that_hangs_before_its_step_begins_is_killed_and_the_attempt_has_failed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_START_SECONDS", 0.5)
    monkeypatch.setenv("PERDURE_TEST_HANGING", "1")
    engine = await worker(opened)
    with pytest.raises(ProcessFailed, match="did not begin within"):
        await (await engine.start(hard.numbers, 1)).result(LIMIT)
    assert counted(engine) == {"started": 1, "killed": 1, "crashed": 0}
    assert engine.metrics()["steps"] == 0, "its time had not begun"


@on_sqlite
async def test_a_worker_that_stops_waits_for_no_cell_that_hangs_before_its_step_begins(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PERDURE_TEST_HANGING", "1")
    engine = await worker(opened)
    await engine.start(hard.numbers, 1)
    await until(lambda: counted(engine)["started"])
    await engine.close(0)
    assert "do not end" not in caplog.text


def test_rule_12_a_cell_inherits_neither_sockets_nor_locks(shared: BlockingEngine) -> None:
    held = [name.partition(":")[0] for name in shared.start(hard.looks).result(LIMIT)]
    assert sorted(held) == ["pipe", "socket"], "its lifeline and its wire"


# -- definitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"hard": 1}, "Write hard=True"),
        ({"memory": "1GiB"}, "Add hard=True"),
        ({"hard": True, "memory": "1 gigabyte"}, 'a text like "512MiB"'),
        ({"hard": True, "memory": True}, 'a text like "512MiB"'),
        ({"hard": True, "memory": 1000}, "1 MiB at least"),
    ],
)
def test_a_hard_step_that_cannot_be_is_refused_when_it_is_defined(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        step(**settings)(hard.hold)


def test_a_hard_step_inside_a_function_is_refused_when_it_is_defined() -> None:
    def inner() -> None: ...

    with pytest.raises(DefinitionError, match="Move it to the top of its module"):
        step(hard=True)(inner)


def test_a_limit_of_memory_is_refused_where_it_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(DefinitionError, match="darwin cannot keep"):
        step(hard=True, memory="1GiB")(hard.wait_with_the_lock)


def test_a_worker_without_room_for_any_hard_step_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least one hard step"):
        WorkerOptions(cells=0)


def test_outside_of_a_workflow_a_hard_step_just_runs() -> None:
    assert hard.number() == os.getpid()
