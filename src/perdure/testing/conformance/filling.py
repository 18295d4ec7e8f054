"""Streams that begin with what is stored: it gets its places below the log, each event once, in order."""

from __future__ import annotations

from perdure.kernel.event import EventType
from perdure.kernel.stream import BEGUN, CREATED, REMOVED, EventStream
from perdure.testing.conformance.streaming import DAY, log, stream, types
from perdure.testing.conformance.trial import Trial, finished, going_on


class Filling:
    """What is stored, put into the log for one stream."""

    async def test_what_is_stored_comes_first_and_what_is_committed_later_after_it_each_once(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        first, second = await trial.owned(worker, key="A-17", input=b'["A-17"]'), await trial.started()
        first = await trial.done(going_on(first, 2))
        made = await filled(trial)
        assert not made.unfilled and (made.owner, made.until) == ("", 0)
        first = await trial.done(finished(first))
        late = await trial.started()
        found = await log(trial, made.position or 0)
        places = [one.position for one in found]
        assert places == list(range(places[0], places[0] + 7)) and made.position == places[0] - 1
        steps = [EventType.STEP_COMPLETED] * 2
        assert types(found, first.id) == [CREATED, BEGUN, *steps, EventType.COMPLETED]
        assert types(found, second.id) == types(found, late.id) == [CREATED] and found[-1].process == late.id
        created, begun, *events = [one.event for one in found if one.process == first.id]
        assert (created.payload, created.at, begun.at) == (b'["A-17"]', first.created_at, first.opened_at)
        assert events == await trial.store.history(first.id, 1)

    async def test_what_is_stored_comes_in_the_order_of_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        one = await trial.owned(worker)
        await trial.time.advance(1)
        other = await trial.owned(worker)
        for row in (other, one):
            await trial.done(going_on(row, 2))
        found = await log(trial, (await filled(trial)).position or 0)
        for row in (one, other):
            assert [logged.event.number for logged in found if logged.process == row.id] == [0, 0, 1, 2]
        assert [logged.process for logged in found if logged.event.type == CREATED] == [one.id, other.id]

    async def test_what_is_stored_comes_from_an_instant_on(self, trial: Trial) -> None:
        old = await trial.owned(await trial.worker())
        old = await trial.done(going_on(old, 2))
        await trial.time.advance(5)
        now = await trial.time.now()
        new = await trial.started()
        made = await filled(trial, since=now)
        await trial.done(finished(old))
        found = await log(trial, made.position or 0)
        assert types(found, new.id) == [CREATED] and types(found, old.id) == [EventType.COMPLETED]
        made = await filled(trial, "nothing", since=now + DAY)
        await trial.started()
        assert types(await log(trial, made.position or 0))[-1:] == [CREATED]

    async def test_what_is_stored_comes_once_beside_a_stream_that_has_had_a_part(self, trial: Trial) -> None:
        before = await trial.owned(await trial.worker())
        other = await stream(trial)
        await trial.done(going_on(before, 3))
        [half] = await trial.store.records(EventStream, [other.next(position=(other.position or 0) + 2)])
        wanted_by_other = await log(trial, half.position or 0)
        made = await filled(trial, "late")
        again = await filled(trial, "later")
        for row in (made, again):
            found = await log(trial, row.position or 0)
            assert types(found, before.id) == [CREATED, BEGUN, *[EventType.STEP_COMPLETED] * 3]
            assert [one.event.number for one in found] == [0, 0, 1, 2, 3]
        assert await log(trial, half.position or 0) == wanted_by_other, "the other stream gets none of it"
        [last, *_] = await trial.store.records(EventStream, [half.next(position=wanted_by_other[-1].position)])
        assert last.name == "audit" and len(await log(trial, again.position or 0)) == 5, "it is kept for the later ones"

    async def test_what_is_stored_comes_whole_after_there_was_a_stream_once(self, trial: Trial) -> None:
        made = await stream(trial)
        row = await trial.owned(await trial.worker())
        row = await trial.done(going_on(row, 2))
        at = (await log(trial))[-1].position
        [made] = await trial.store.records(EventStream, [made.next(position=at)])
        await trial.store.records(EventStream, [made.next(removed=True)])
        row = await trial.done(going_on(row, 2))
        made = await filled(trial)
        await trial.done(going_on(row))
        found = await log(trial, made.position or 0)
        assert [one.event.number for one in found if one.process == row.id] == [0, 0, 1, 2, 3, 4, 5]

    async def test_a_stream_is_filled_once_and_no_other_is(self, trial: Trial) -> None:
        await trial.started()
        made = await filled(trial)
        events = trial.store.backend.event_log
        assert not await events.fill("audit", 0) and not await events.fill("nobody", 0)
        assert await trial.store.records(EventStream) == [made]
        assert len(await log(trial, made.position or 0)) == 1

    async def test_what_was_stored_is_delivered_although_it_was_removed_meanwhile(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker(), key="A-17", input=b'["tea"]')
        await trial.done(finished(await trial.done(going_on(row, 3))))
        made = await filled(trial)
        before = await log(trial, made.position or 0)
        await trial.time.advance(1)
        assert (await trial.store.prune(0, DAY, 100)).processes == 1
        after = await log(trial, made.position or 0)
        assert after[:-1] == before and after[-1].event.type == REMOVED


async def filled(trial: Trial, name: str = "audit", since: int = 0) -> EventStream:
    """Make a stream that begins with what is stored; the answer is its row."""
    unfilled = EventStream(name).begun_with_what_is_stored().next()
    assert unfilled in await trial.store.records(EventStream, [unfilled])
    assert await trial.store.backend.event_log.fill(name, since)
    return next(row for row in await trial.store.records(EventStream) if row.name == name)
