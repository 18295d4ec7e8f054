"""Event streams: what happens to processes, in one order, from a position on, while there is a stream."""

from __future__ import annotations

import asyncio

from msgspec import json
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Removal, Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.stream import BEGUN, CREATED, LIFECYCLE, REMOVED, EventStream, LoggedEvent
from perdure.streaming.record import record_of
from perdure.testing.conformance.trial import KIND, Trial, finished, forced, going_on, released

AUDIT = EventStream("audit", 1)
DAY = 24 * 3600 * SECOND
_READ = {
    "event": {"type", "at", "place", "name", "payload", "number"},
    "process": {"kind", "key", "input", "code", "created_at"},
}
"""Of these columns a stream reads what it hands on; all others are damaged in the tests of processes."""


class Streaming:
    """The log of events, and the rows of event streams."""

    async def test_a_stream_is_written_whole_and_read_again_by_name(self, trial: Trial) -> None:
        now = await trial.time.now()
        full = EventStream(
            "warehouse",
            1,
            '["order"]',
            True,
            "https://example.org",
            7,
            "reader",
            now,
            3,
            "é",
            now + 1,
            "ana",
            "why",
            "cli",
        )
        bare = EventStream("audit", 1, position=0)
        assert await trial.store.records(EventStream) == []
        assert await trial.store.records(EventStream, [full, bare]) == [bare, full]
        [_, read] = await trial.store.records(EventStream, [full])
        assert read == full and read.lifecycle is True
        ours, theirs = full.next(position=9), full.next(position=11)
        assert await trial.store.records(EventStream, [ours]) == [bare, ours]
        assert await trial.store.records(EventStream, [theirs]) == [bare, ours], "of one version one counts"
        assert await trial.store.records(EventStream, [EventStream("other", 2)]) == [bare, ours], "the first is one"

    async def test_a_stream_is_taken_away_in_its_next_version_alone(self, trial: Trial) -> None:
        [made] = await trial.store.records(EventStream, [AUDIT])
        assert await trial.store.records(EventStream, [replace(made, version=9, removed=True)]) == [made]
        assert await trial.store.records(EventStream, [made.next(removed=True)]) == []
        assert await trial.store.records(EventStream, [made.next(removed=True)]) == []

    async def test_a_life_is_logged_in_its_order_with_what_each_event_holds(self, trial: Trial) -> None:
        await stream(trial)
        worker = await trial.worker()
        row = await trial.owned(worker, key="A-17", input=b'["A-17"]')
        row = await trial.done(going_on(row, 2))
        await trial.done(finished(row))
        found = await log(trial)
        assert [one.position for one in found] == [1, 2, 3, 4, 5]
        assert {(one.process, one.kind, one.key, one.code, one.run) for one in found} == {
            (row.id, KIND, "A-17", "1", 1)
        }
        created, begun, first, second, last = [one.event for one in found]
        assert (created.type, created.number, created.payload) == (CREATED, 0, b'["A-17"]')
        assert (begun.type, begun.number, begun.payload) == (BEGUN, 0, None)
        assert created.at == row.created_at and begun.at == row.opened_at
        stored = await trial.store.history(row.id, 1)
        assert [first, second, last] == stored
        assert last.type is EventType.COMPLETED

    async def test_a_process_that_begins_with_its_worker_is_created_and_begun(self, trial: Trial) -> None:
        await stream(trial)
        worker = await trial.worker()
        process = trial.process(owner=worker, token=1)
        await trial.store.start([Start(process, lease=SECOND), Start(trial.process())])
        assert types(await log(trial), process.id) == [CREATED, BEGUN]
        assert sorted(types(await log(trial))) == [CREATED, CREATED, BEGUN]

    async def test_what_is_not_written_is_not_logged(self, trial: Trial) -> None:
        await stream(trial)
        worker = await trial.worker()
        row = await trial.owned(worker, key="A-17")
        known = await log(trial)
        assert (await trial.commit(replace(going_on(row), token=row.token + 1))).verdict is Verdict.REFUSED
        await trial.store.start([Start(trial.process(key="A-17"))])
        await trial.send(row.id)
        await trial.beat(worker, row)
        assert await log(trial) == known

    async def test_a_commit_that_is_sent_again_is_logged_once(self, trial: Trial) -> None:
        await stream(trial)
        row = await trial.owned(await trial.worker())
        commit = going_on(row, 3)
        await trial.done(commit)
        await trial.commit(commit)
        assert types(await log(trial)) == [CREATED, BEGUN, *[EventType.STEP_COMPLETED] * 3]

    async def test_what_came_before_the_first_stream_is_not_logged(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        assert await trial.store.backend.event_log.head() == 0
        assert await log(trial) == []
        await stream(trial)
        await trial.done(going_on(row))
        assert types(await log(trial)) == [EventType.STEP_COMPLETED]

    async def test_a_stream_begins_behind_all_that_is_committed(self, trial: Trial) -> None:
        await stream(trial)
        await trial.started()
        [_, late] = await trial.store.records(EventStream, [EventStream("late", 1)])
        assert late.position == await trial.store.backend.event_log.head() == 1
        await trial.started()
        assert [one.position for one in await log(trial, late.position)] == [2]

    async def test_no_number_is_given_twice_after_all_was_delivered(self, trial: Trial) -> None:
        made = await stream(trial)
        for position in range(1, 4):
            process = await trial.started()
            [one] = await log(trial, made.position or 0)
            assert (one.process, one.position) == (process.id, position)
            [made] = await trial.store.records(EventStream, [made.next(position=position)])

    async def test_after_the_last_stream_nothing_is_logged_and_nothing_is_kept(self, trial: Trial) -> None:
        made = await stream(trial)
        await trial.started()
        await trial.store.records(EventStream, [made.next(removed=True)])
        await trial.started()
        again = await stream(trial)
        assert await log(trial, again.position or 0) == []
        await trial.started()
        assert types(await log(trial, again.position or 0)) == [CREATED]

    async def test_a_page_has_a_bound_of_positions_and_goes_on_behind_it(self, trial: Trial) -> None:
        await stream(trial)
        row = await trial.owned(await trial.worker())
        await trial.done(going_on(row, 5))
        everything = await log(trial)
        taken: list[LoggedEvent] = []
        behind = 0
        for _ in range(4):
            page = await trial.store.backend.event_log.read(behind, 2, 1_000_000)
            assert len(page.events) <= 2
            taken += page.events
            behind = page.upto
        assert taken == everything and behind == len(everything) == 7

    async def test_a_page_ends_after_the_payload_that_passes_its_bound_of_bytes(self, trial: Trial) -> None:
        await stream(trial)
        for size in (10, 10, 10, 10):
            await trial.started(input=b"1" * size)
        page = await trial.store.backend.event_log.read(0, 100, 15)
        told = [one.position for one in page.events]
        assert told in ([1, 2], [1]) and page.upto == told[-1], "bytes are those that are stored: sealed, one is enough"
        page = await trial.store.backend.event_log.read(2, 100, 0)
        assert [one.position for one in page.events] == [3] and page.upto == 3

    async def test_kinds_and_types_narrow_and_the_page_tells_how_far_it_has_looked(self, trial: Trial) -> None:
        await stream(trial)
        for kind in ("order", "parcel", "@bank", "perdure/webhook"):
            await trial.started(kind=kind)
        events = trial.store.backend.event_log
        assert [one.kind for one in (await events.read(0, 100, 1000)).events] == ["order", "parcel"]
        page = await events.read(0, 100, 1000, ["@bank", "perdure/webhook"])
        assert ([one.kind for one in page.events], page.upto) == (["@bank", "perdure/webhook"], 4)
        nothing = await events.read(0, 3, 1000, ["nobody"])
        assert (nothing.events, nothing.upto) == ((), 3)
        row = await trial.owned(await trial.worker())
        await trial.done(finished(await trial.done(going_on(row))))
        page = await events.read(4, 100, 1000, None, LIFECYCLE)
        assert types(page.events) == [CREATED, BEGUN, EventType.COMPLETED]

    async def test_what_was_removed_before_it_was_delivered_is_delivered_all_the_same(self, trial: Trial) -> None:
        made = await stream(trial)
        row = await trial.owned(await trial.worker(), key="A-17", input=b'["tea"]')
        row = await trial.done(finished(await trial.done(going_on(row, 3))))
        before = await log(trial)
        await trial.time.advance(1)
        assert (await trial.store.prune(0, DAY, 100)).processes == 1
        after = await log(trial)
        assert after[:-1] == before
        last = after[-1]
        assert (last.event.type, last.process, last.kind, last.key) == (REMOVED, row.id, KIND, "A-17")
        assert last.event.at == await trial.time.now()
        [made] = await trial.store.records(EventStream, [made.next(position=3)])
        assert await log(trial, 3) == after[3:], "what is kept stays until every stream has had it"
        await trial.store.records(EventStream, [made.next(position=last.position)])
        assert await log(trial, last.position) == []

    async def test_a_fork_is_delivered_after_its_removal_though_its_events_are_old(self, trial: Trial) -> None:
        await stream(trial)
        await trial.started()
        now = await trial.time.now()
        opened = Event(1, 0, EventType.RUN_OPENED, now, payload=b"{}")
        process = trial.process(events=3, opened_at=now, created_at=now)
        await trial.store.start([Start(process, (opened, *_old(now, 2, 3)))])
        await self._is_told_after_its_removal(trial, process.id)

    async def test_an_imported_process_is_delivered_after_its_removal_though_all_of_it_is_old(
        self, trial: Trial
    ) -> None:
        await stream(trial)
        await trial.started()
        now = await trial.time.now()
        old = now - 3 * DAY
        process = trial.process(events=2, run=2, opened_at=old, created_at=old, input=b'["tea"]')
        await trial.store.start([Start(process, _old(now, 1, 2))])
        await self._is_told_after_its_removal(trial, process.id)

    async def test_a_run_that_keeps_old_events_is_delivered_after_its_removal(self, trial: Trial) -> None:
        made = await stream(trial)
        row = await trial.done(going_on(await trial.owned(await trial.worker()), 2))
        [had] = await trial.store.records(EventStream, [made.next(position=(await log(trial))[-2].position)])
        now = await trial.time.now()
        opened = Event(1, 0, EventType.RUN_OPENED, now, payload=b"{}")
        row = await trial.done(forced(row, run=2, events=(opened, *_old(now, 2, 3))))
        await self._is_told_after_its_removal(trial, row.id, had.position or 0)

    async def _is_told_after_its_removal(self, trial: Trial, process: bytes, behind: int = 0) -> None:
        """End and remove the process: all that was told of it is told as before."""
        await trial.done(finished(await trial.row(process)))
        before = await log(trial, behind)
        await trial.time.advance(1)
        assert (await trial.store.prune(0, DAY, 100)).processes == 1
        after = await log(trial, behind)
        assert after[:-1] == before
        assert (after[-1].process, after[-1].event.type) == (process, REMOVED)

    async def test_a_command_that_removes_a_process_is_logged_with_the_removal(self, trial: Trial) -> None:
        await stream(trial)
        row = await trial.started()
        done = finished(row, Status.CANCELLED)
        await trial.commit(replace(done, removes=Removal.PROCESS))
        assert types(await log(trial)) == [CREATED, EventType.CANCELLED, REMOVED]

    async def test_each_of_two_streams_gets_everything_at_its_own_pace(self, trial: Trial) -> None:
        first = await stream(trial)
        [_, second] = await trial.store.records(EventStream, [EventStream("second", 1)])
        for _ in range(3):
            await trial.started()
        await trial.store.records(EventStream, [first.next(position=3)])
        assert [one.position for one in await log(trial, second.position or 0)] == [1, 2, 3]

    async def test_each_process_s_events_keep_their_order_with_many_writers(self, trial: Trial) -> None:
        if not trial.ground.shared:
            return
        await stream(trial)
        other = Trial(trial.ground, trial.ground.store(), trial.ids)
        await other.store.open()
        try:
            rows = [await trial.owned(await trial.worker()) for _ in range(8)]

            async def live(one: Trial, row: Process) -> None:
                for _ in range(5):
                    row = await one.done(going_on(row, 2))

            await asyncio.gather(*(live((trial, other)[n % 2], row) for n, row in enumerate(rows)))
        finally:
            await other.store.close()
        found = await log(trial)
        assert [one.position for one in found] == list(range(1, len(found) + 1))
        for row in rows:
            assert [one.event.number for one in found if one.process == row.id] == [0, 0, *range(1, 11)]

    async def test_a_bad_value_in_any_row_is_told_and_keeps_no_record_of_others_waiting(self, trial: Trial) -> None:
        await stream(trial)
        worker = await trial.worker()

        async def lived() -> bytes:
            return (await trial.done(going_on(await trial.owned(worker), 2))).id

        sound = [await lived()]
        for table, columns in _READ.items():
            for damage in trial.ground.damages(table):
                if damage.partition(":")[0].partition(" ")[0] in columns:
                    await trial.ground.damage(trial.store, await lived(), table, damage)
        await trial.ground.damage(trial.store, await lived(), "event", "missing: the first")
        sound.append(await lived())
        found = await log(trial)
        records = [json.decode(record_of(one).as_json()) for one in found]
        assert any(record["type"] == "lost" and "damaged" in record["trouble"] for record in records)
        for id in sound:
            assert types(found, id) == [CREATED, BEGUN, *[EventType.STEP_COMPLETED] * 2]

    async def test_a_command_on_a_process_that_a_worker_holds_is_logged(self, trial: Trial) -> None:
        await stream(trial)
        row = await trial.owned(await trial.worker())
        await trial.done(forced(row, EventType.RESUMED))
        assert types(await log(trial)) == [CREATED, BEGUN, EventType.RESUMED]

    async def test_a_timer_far_ahead_is_no_event(self, trial: Trial) -> None:
        await stream(trial)
        row = await trial.owned(await trial.worker())
        await trial.done(released(row, row.created_at + DAY, 0))
        assert types(await log(trial)) == [CREATED, BEGUN]


async def stream(trial: Trial) -> EventStream:
    """Make the stream of the suite; the answer is its row."""
    rows = await trial.store.records(EventStream, [AUDIT])
    return next(row for row in rows if row.name == AUDIT.name)


def _old(now: int, first: int, last: int) -> tuple[Event, ...]:
    """Results of steps as they were written three days ago."""
    return tuple(
        Event(number, 1, EventType.STEP_COMPLETED, now - 3 * DAY, str(number), "charge", b"1", b"8 bytes!")
        for number in range(first, last + 1)
    )


async def log(trial: Trial, behind: int = 0) -> list[LoggedEvent]:
    """All that was logged behind a position."""
    page = await trial.store.backend.event_log.read(behind, 10_000, 1_000_000)
    return list(page.events)


def types(found: list[LoggedEvent] | tuple[LoggedEvent, ...], process: bytes | None = None) -> list[int]:
    """The types of these records, or of those of one process."""
    return [int(one.event.type) for one in found if process in (None, one.process)]
