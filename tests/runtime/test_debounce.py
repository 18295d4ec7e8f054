"""Debounced starts, on both stores: many starts in a row are one process with what the last one gave; then the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.start import NamedWorkflow, Startable
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.client.handle import Handle
from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.errors import InvalidInput, ProcessCancelled
from perdure.kernel import soundness
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Verdict
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.transition import released
from perdure.kernel.worker import WorkerRow
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.test_sealed_life import sealed

begun: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    begun.clear()


@workflow
async def report(what: str) -> str:
    begun.append(what)
    return what


@workflow
async def patient(what: str) -> str:
    begun.append(what)
    return what + await receive("word", str)


FLOWS = [report, patient]


def soon(seconds: float = 0.2, **options: Any) -> Startable[[str], str]:
    return report.options(key="user-7", debounce=seconds, **options)


def later(**options: Any) -> Startable[[str], str]:
    return report.options(key="user-7", debounce=3600, **options)


async def sound(engine: Engine, handle: Handle[Any]) -> None:
    row = await engine.row(handle.id)
    events = await engine.store.history(row.id, row.run)
    messages = await engine.store.messages([(row.id, 0)])
    assert soundness.unsound(row, events, messages, await engine.store.now()) == []


async def test_many_starts_begin_one_process_with_what_the_last_one_gave(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handles = [await engine.start(later(), f"draft {number}") for number in range(3)]
    handles.append(await engine.start(soon(), "draft 3"))
    assert len({handle.id for handle in handles}) == 1
    assert [handle.created for handle in handles] == [True, False, False, False]
    assert [await handle.result(LIMIT) for handle in handles] == ["draft 3"] * 4
    assert begun == ["draft 3"]
    await sound(engine, handles[0])


async def test_each_start_puts_it_off_but_not_behind_the_longest_wait(opened: Open) -> None:
    engine, _ = await opened(workflows=FLOWS)
    first = await engine.start(later(debounce_longest=5400), "a")
    row = await engine.row(first.id)
    assert row.due_at is not None
    assert abs(row.due_at - row.created_at - 3600 * SECOND) < 5 * SECOND
    await engine.start(report.options(key="user-7", debounce=5000, debounce_longest=5400), "b")
    await engine.start(report.options(key="user-7", debounce=5400, debounce_longest=5400), "c")
    after = await engine.row(first.id)
    assert after.due_at == after.created_at + 5400 * SECOND
    view = await first.status()
    assert (view.mover, view.waiting) == ("timer", "it waits for the time of its start")


async def test_a_later_start_replaces_the_options_too(opened: Open) -> None:
    engine, _ = await opened(workflows=FLOWS)
    first = await engine.start(later(attributes={"shop": 1}, deadline=7200, priority=2), "a")
    await engine.start(later(attributes={"branch": "Bern"}, priority=7), "b")
    row = await engine.row(first.id)
    assert (row.attributes, row.deadline, row.priority) == (b'{"branch":"Bern"}', None, 7)
    await engine.start(later(), "c")
    assert (await engine.row(first.id)).attributes is None


def versions() -> tuple[Workflow[[str], str], Workflow[[str, int], str]]:
    """Two versions of one workflow, of which the newer one takes another argument."""

    @workflow(name="bill", version="1")
    async def old(what: str) -> str:
        return f"old {what}"

    @workflow(name="bill", version="2")
    async def new(what: str, number: int) -> str:
        return f"{number} {what}"

    return old, new


async def test_a_later_start_of_another_version_begins_that_version(opened: Open) -> None:
    old, new = versions()
    engine, _ = await opened(work=True, workflows=[old, new])
    first = await engine.start(old.options(key="user-7", debounce=3600), "a")
    again = await engine.start(new.options(key="user-7", debounce=0.1), "b", 3)
    assert (again.id, await again.result(LIMIT)) == (first.id, "3 b")
    assert (await first.status()).code == "2"
    await sound(engine, first)


async def test_a_later_start_that_knows_no_version_keeps_that_of_the_first(opened: Open) -> None:
    old, _ = versions()
    engine, _ = await opened(workflows=[old])
    unaware, _ = await opened(workflows=FLOWS)
    first = await engine.start(old.options(key="user-7", debounce=3600), "a")
    await unaware.start(NamedWorkflow("bill").options(key="user-7", debounce=3600), "b")
    row = await engine.row(first.id)
    assert row.code == "1" and b'"b"' in bytes(opening_of(await first.history()).input)


async def test_once_it_has_begun_the_next_start_is_another_process(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    options = patient.options(key="user-7", debounce=0.1)
    one = await engine.start(options, "a")
    await until_row(engine, one.id, lambda row: row.awaiting == "signal word")
    two = await engine.start(options, "b")
    assert (two.created, two.id != one.id) == (True, True)
    assert (await engine.row(one.id)).key is None
    await one.signal("word", "!")
    await two.signal("word", "?")
    assert [await one.result(LIMIT), await two.result(LIMIT)] == ["a!", "b?"]
    assert (await one.history())[0].type is EventType.KEY_RELEASED
    await sound(engine, one)


async def test_a_key_of_a_debounced_start_is_none_of_other_starts(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    plain = await engine.start(report.options(key="user-7"), "plain")
    debounced = await engine.start(soon(), "debounced")
    assert [await plain.result(LIMIT), await debounced.result(LIMIT)] == ["plain", "debounced"]
    assert plain.id != debounced.id


async def test_two_starts_at_once_are_one_process(opened: Open) -> None:
    one, _ = await opened(workflows=FLOWS)
    two, _ = await opened(workflows=FLOWS)
    handles = await asyncio.gather(*(engine.start(later(), name) for engine in (one, two) for name in "abcd"))
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1


async def claimed_elsewhere(engine: Engine, row: Process, lease: int) -> Process:
    """The process as another worker has it, for so many microseconds."""
    worker = engine.machine.new_id()
    await engine.store.enlist(WorkerRow(worker, "elsewhere"), lease)
    claim = Claim(worker, ((row.kind, row.code),), 1, lease, only=row.id)
    return (await engine.store.claim(claim)).claimed[0].process


async def test_one_whose_worker_is_gone_before_it_has_begun_tells_so_when_it_begins(opened: Open) -> None:
    engine, _ = await opened(workflows=FLOWS)
    handle = await engine.start(soon(0.01), "a")
    await claimed_elsewhere(engine, await engine.row(handle.id), 1000)
    other, _ = await opened(work=True, workflows=FLOWS)
    assert await other.process(handle.id).result(timeout=LIMIT) == "a"
    types = [event.type for event in await other.process(handle.id).history()]
    assert types[:2] == [EventType.REVIVED, EventType.KEY_RELEASED]
    await sound(other, handle)


async def test_a_start_while_a_worker_claims_it_takes_it_back(opened: Open) -> None:
    """The process has been claimed and has not begun: its claim counts no more, and no code has run."""
    engine, store = await opened(workflows=FLOWS)
    handle = await engine.start(soon(0.01), "a")
    row = await engine.row(handle.id)
    claimed = await claimed_elsewhere(engine, row, 15 * SECOND)
    again = await engine.start(soon(0.01), "b")
    assert (again.id, again.created) == (handle.id, False)
    assert (await store.commit([released(claimed, due_at=0)]))[0].verdict is Verdict.REFUSED
    other, _ = await opened(work=True, workflows=FLOWS)
    assert await other.process(handle.id).result(timeout=LIMIT) == "b"
    assert begun == ["b"]


async def test_a_person_ends_or_holds_the_one_that_waits(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    first = await engine.start(later(), "a")
    await first.hold(why="not now")
    held = await engine.start(soon(0.01), "b")
    assert held.id == first.id
    assert (await engine.row(first.id)).status is Status.HELD
    await first.terminate(why="no more")
    second = await engine.start(soon(0.01), "c")
    assert (second.created, await second.result(LIMIT)) == (True, "c")
    third = await engine.start(patient.options(key="user-7", debounce=3600), "d")
    await third.cancel(why="no more")
    with pytest.raises(ProcessCancelled):
        await third.result(LIMIT)
    assert begun == ["c", "d"]


async def test_sealed_inputs_are_replaced_and_can_be_read_when_it_begins(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS, codecs=sealed())
    first = await engine.start(soon(), "a")
    assert await first.result(LIMIT) == "a"
    second = await engine.start(later(), "b")
    await engine.start(soon(), "c")
    assert await second.result(LIMIT) == "c"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"debounce": 0}, "the debounce is 0"),
        ({"debounce": 60, "key": None}, "needs key="),
        ({"debounce": 60, "delay": 60}, "Give one of them"),
        ({"debounce": 60, "signal": ("word", 1)}, "Give one of them"),
        ({"debounce_longest": 60}, "Give both"),
        ({"debounce": 60, "debounce_longest": 30}, "is shorter than debounce"),
        ({"debounce": 60, "deadline": 60}, "is not shorter than the deadline"),
        ({"debounce": 60, "key": "k" * 255}, "at most 254 bytes"),
    ],
)
async def test_a_debounce_that_makes_no_sense_is_refused(opened: Open, options: dict[str, Any], words: str) -> None:
    engine, _ = await opened(workflows=FLOWS)
    with pytest.raises(InvalidInput, match=words):
        await engine.start(report.options(**{"key": "user-7"} | options), "a")
    assert not await engine.list()
