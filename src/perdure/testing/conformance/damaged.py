"""Damaged rows: whatever one column of one process holds, no other process waits, and each verb has an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from perdure.clock import SECOND
from perdure.errors import BadRecord, DamagedRecord, PerdureError, StoreUnavailable
from perdure.kernel import transition
from perdure.kernel.breaker import Circuit
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.integrity import flaw
from perdure.kernel.leader import Leader
from perdure.kernel.note import Note
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.queue import Queue
from perdure.kernel.soundness import unsound
from perdure.kernel.transition import Sender
from perdure.store.base import Overdue, Search
from perdure.testing.conformance.trial import Trial, finished, going_on, released

SENDER = Sender("ann", "it is damaged", "test")


class Damaged:
    """One process for each bad value, all in one database, and healthy neighbours of the same kind."""

    @pytest.mark.parametrize("table", ["process", "event", "message"])
    async def test_a_bad_value_in_any_column_hurts_only_its_own_process(self, trial: Trial, table: str) -> None:
        damages = trial.ground.damages(table)
        assert damages
        planted: dict[bytes, str] = {}
        for damage in damages:
            process = await _aged(trial)
            if await trial.ground.damage(trial.store, process, table, damage):
                planted[process] = f"{table}.{damage}"
        assert len(planted) > len(damages) // 2
        healthy = [await _aged(trial) for _ in range(3)]

        await _asked_of_all(trial, set(healthy))
        claimed = await _claimed(trial)
        assert set(healthy) <= claimed.keys()
        for id in healthy:
            one = claimed[id]
            assert one.trouble is None and flaw(one.process, one.events, one.messages) is None
            last = one.messages[-1]
            ending = finished(one.process, seen=last.number, consumed=((last.number, one.process.events + 1),))
            assert (await trial.done(ending)).status is Status.COMPLETED
        for id, damage in planted.items():
            await _asked_of_one(trial, id, damage)
            await _ended(trial, id, damage)

    async def test_a_bad_value_in_a_worker_or_a_queue_ends_no_claim(self, trial: Trial) -> None:
        for table in ("worker", "queue"):
            for damage in trial.ground.damages(table):
                name = f"bad-{len(await trial.store.records(Queue))}"
                await trial.store.records(Queue, [Queue(name, concurrency=1)])
                silent = await trial.worker("silent")
                await trial.ground.damage(trial.store, silent if table == "worker" else name.encode(), table, damage)
        process = await _aged(trial)
        assert process in await _claimed(trial)
        await _answered(trial.store.workers(ended=True), "workers")
        assert len(await trial.store.workers()) >= 1
        assert len(await trial.store.records(Queue)) >= 1

    async def test_a_bad_value_in_a_circuit_is_read_or_refused_with_a_typed_error(self, trial: Trial) -> None:
        for number, damage in enumerate(trial.ground.damages("circuit")):
            name = f"bad-{number}"
            await trial.store.records(Circuit, [Circuit(name, 1, "open", until=1)])
            await trial.ground.damage(trial.store, name.encode(), "circuit", damage)
        await _answered(trial.store.records(Circuit), "circuits")

    async def test_a_bad_value_in_a_leader_is_read_or_refused_with_a_typed_error(self, trial: Trial) -> None:
        for number, damage in enumerate(trial.ground.damages("leader")):
            name = f"bad-{number}"
            await trial.store.records(Leader, [Leader(name, 1, 1, "one", "here:1", until=1)])
            await trial.ground.damage(trial.store, name.encode(), "leader", damage)
        await _answered(trial.store.records(Leader), "leaders")

    async def test_a_bad_value_in_a_note_is_read_or_refused_with_a_typed_error(self, trial: Trial) -> None:
        for number, damage in enumerate(trial.ground.damages("note")):
            name = f"bad-{number}"
            await trial.store.records(Note, [Note(name, 1, 1, "{}")])
            await trial.ground.damage(trial.store, name.encode(), "note", damage)
        await _answered(trial.store.records(Note), "notes")

    async def test_a_commit_that_its_damaged_row_cannot_match_is_told_from_its_neighbours(self, trial: Trial) -> None:
        worker = await trial.worker()
        bad, good = await trial.owned(worker), await trial.owned(worker)
        assert await trial.ground.damage(trial.store, bad.id, "process", "inbox: -1")
        # After a BadRecord the batch is halved until the guilty commit stands alone.
        with suppress(BadRecord):
            await trial.store.commit([going_on(bad), going_on(good)])
        assert (await trial.commit(going_on(good))).verdict is Verdict.APPLIED
        with suppress(BadRecord):
            await trial.commit(going_on(bad))

    async def test_a_missing_event_or_message_is_seen_at_the_claim(self, trial: Trial) -> None:
        whole = await _aged(trial)
        for table in ("event", "message"):
            for place in ("first", "last"):
                process = await _aged(trial)
                assert await trial.ground.damage(trial.store, process, table, f"missing: the {place}")
                one = (await _claimed(trial))[process]
                found = flaw(one.process, one.events, one.messages)
                assert isinstance(found, DamagedRecord) and "is not whole" in str(found)
        row = await trial.row(whole)
        assert row.owner is not None
        held = await _whole_of(trial, row)
        assert flaw(*held) is None

    async def test_what_comes_between_a_claim_and_its_reading_is_no_damage(self, trial: Trial) -> None:
        process = await _aged(trial)
        one = (await _claimed(trial))[process]
        await trial.send(process)
        after = await trial.done(going_on(one.process))
        assert flaw(one.process, one.events, one.messages) is None
        assert after.events == one.process.events + 1
        row, events, messages = await _whole_of(trial, await trial.row(process))
        assert flaw(row, events, messages) is None


async def _aged(trial: Trial) -> bytes:
    """A process that is due, with three events, of which one has received a message, and a message to be heard."""
    worker = await trial.worker()
    id = trial.ids.new_id()
    row = await trial.owned(worker, id=id, attributes=b'{"of":"damage"}', key=f"key/{id.hex()}")
    await trial.send(row.id)
    row = await trial.done(going_on(row, steps=2))
    row = await trial.done(released(await trial.row(row.id), row.created_at, **_received(row)))
    await trial.send(row.id)
    return row.id


def _received(row: Process) -> dict[str, Any]:
    event = Event(
        row.events + 1, row.version + 1, EventType.MESSAGE_RECEIVED, row.created_at, "", "approval", message=1
    )
    return {"events": (event,), "seen": 1, "consumed": ((1, event.number),)}


async def _claimed(trial: Trial) -> dict[bytes, Claimed]:
    """All that one worker can claim, plain and suspect."""
    worker = await trial.worker("claims")
    found: dict[bytes, Claimed] = {}
    for alone in (False, True):
        while taken := (await trial.claim(worker, alone=alone)).claimed:
            found |= {one.process.id: one for one in taken}
    return found


async def _whole_of(trial: Trial, row: Process) -> tuple[Process, tuple[Any, ...], tuple[Any, ...]]:
    whole = await trial.whole(row.id)
    heard = {event.message for event in whole.events}
    messages = [one for one in whole.messages if one.consumed_by is None or one.number in heard]
    return whole.process, whole.events, tuple(messages)


async def _answered(asked: Awaitable[Any], what: str) -> Any:
    """The answer, or None for a typed error; an error that says to try again would be tried for ever."""
    try:
        return await asked
    except StoreUnavailable as error:
        pytest.fail(f"{what}: {error}")
    except PerdureError:
        return None


async def _asked_of_all(trial: Trial, healthy: set[bytes]) -> None:
    """Lists, counts and looks of sweeps: one bad row hides none of the others."""
    assert healthy <= {row.id for row in await trial.store.search(Search(limit=1_000, tasks=True))}
    assert healthy <= {
        row.id for row in await trial.store.search(Search(attributes=(("of", '"damage"'),), limit=1_000))
    }
    assert sum(number for _, _, number in await trial.store.count(Search())) >= len(healthy)
    for overdue in Overdue:
        await trial.store.search(Search(overdue=overdue, limit=1_000, owner=b"1" * 16))
    await trial.store.prune(SECOND, SECOND, 100)
    for row in await trial.stored():
        await trial.store.history(row.id, row.run)
    assert healthy <= {one.process for one in await trial.store.messages([(id, 0) for id in sorted(healthy)])}


async def _asked_of_one(trial: Trial, id: bytes, damage: str) -> None:
    verbs: dict[str, Callable[[], Awaitable[Any]]] = {
        "row": lambda: trial.row(id),
        "history": lambda: trial.store.history(id, 1, limit=100),
        "backward": lambda: trial.store.history(id, 1, limit=100, backward=True),
        "messages": lambda: trial.store.messages([(id, 0)]),
        "send": lambda: trial.send(id),
        "start": lambda: trial.store.start([Start(trial.process(key=f"key/{id.hex()}"))]),
    }
    for verb, asked in verbs.items():
        await _answered(asked(), f"{verb} after {damage}")
    row = await trial.row(id)
    events = await trial.store.history(id, row.run, limit=100)
    for _ in unsound(row, events, await trial.store.messages([(id, 0)]), await trial.time.now()):
        pass


async def _ended(trial: Trial, id: bytes, damage: str) -> None:
    """A person ends it: then it has ended, unless it had before, or the database refuses its row by a typed error."""
    row = await trial.row(id)
    if row.status in FINAL:
        return
    events = await trial.store.history(id, row.run, limit=100)
    commit = transition.terminated(row, SENDER, events, now=await trial.time.now())
    answer = await _answered(trial.commit(commit), f"terminate after {damage}")
    if answer is not None and (await trial.row(id)).status is not Status.CANCELLED:
        pytest.fail(f"{damage}: it cannot be ended: {answer}")
