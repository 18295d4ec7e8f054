"""Showing: what a process shows by its commits, attributes and published values, and how it is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.store.base import Search
from perdure.store.notifications import Notification
from perdure.testing.conformance.ground import Ground
from perdure.testing.conformance.trial import Trial, going_on, released
from perdure.testing.conformance.waking import PATIENCE

PUBLISHED = EventType.PUBLISHED
ANSWERS = (EventType.CALL_ANSWERED, EventType.CALL_REFUSED)
RIGA, ROME = (Search(attributes=(("city", city),)) for city in ('"Riga"', '"Rome"'))


def _values(row: Process, *names: str) -> tuple[Event, ...]:
    """Values published under these names, one after the other."""
    return tuple(
        Event(number, 0, PUBLISHED, row.created_at, str(number), name, b"%d" % number)
        for number, name in enumerate(names, row.events + 1)
    )


def _answers(row: Process, names: list[str]) -> tuple[Event, ...]:
    """Answers to the calls of these names, each with its run as payload; the last one is a refusal."""
    types = [EventType.CALL_ANSWERED] * (len(names) - 1) + [EventType.CALL_REFUSED]
    return tuple(
        Event(number, 0, type, row.created_at, "", name, b"%d" % row.run)
        for number, (type, name) in enumerate(zip(types, names, strict=True), row.events + 1)
    )


class Showing:
    """Attributes that commits change, histories told by type and name, and hints that values were published."""

    async def test_a_commit_changes_the_attributes_only_if_it_says_so(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker(), attributes=b'{"city":"Riga"}')
        row = await trial.done(going_on(row, attributes=b'{"city":"Rome"}', attributes_set=False))
        assert row.attributes == b'{"city":"Riga"}'
        row = await trial.done(going_on(row, attributes=b'{"city":"Rome"}'))
        assert row.attributes == b'{"city":"Rome"}'
        row = await trial.done(going_on(row))
        assert row.attributes == b'{"city":"Rome"}'
        row = await trial.done(going_on(row, attributes=None))
        assert row.attributes is None

    @pytest.mark.parametrize("batch", [1, 3])
    async def test_a_search_finds_a_process_by_what_it_has_set_as_soon_as_the_commit_is_written(
        self, trial: Trial, batch: int
    ) -> None:
        worker = await trial.worker()
        rows = [await trial.owned(worker, attributes=b'{"city":"Riga"}') for _ in range(batch)]
        changed, *others = rows
        await trial.store.commit([going_on(changed, attributes=b'{"city":"Rome"}'), *map(going_on, others)])
        assert [row.id for row in await trial.store.search(ROME)] == [changed.id]
        assert {row.id for row in await trial.store.search(RIGA)} == {row.id for row in others}

    async def test_a_refused_commit_changes_no_attributes(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker(), attributes=b'{"city":"Riga"}')
        late = going_on(row, attributes=b'{"city":"Rome"}')
        await trial.done(going_on(row))
        await trial.commit(late)
        assert (await trial.row(row.id)).attributes == b'{"city":"Riga"}'

    async def test_a_history_is_told_by_type_and_name(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        row = await trial.done(going_on(row, steps=2))
        row = await trial.done(going_on(row, events=_values(row, "line", "note", "line"), published=True))
        row = await trial.done(going_on(row, events=_values(row, "charge", "line"), published=True))
        lines: dict[str, Any] = {"types": (PUBLISHED,), "names": ("line",)}
        wanted: list[tuple[dict[str, Any], list[int]]] = [
            (lines, [3, 5, 7]),
            (lines | {"after": 3}, [5, 7]),
            (lines | {"after": 3, "limit": 1}, [5]),
            (lines | {"after": 7}, []),
            (lines | {"backward": True, "limit": 1}, [7]),
            (lines | {"backward": True, "after": 7, "limit": 1}, [5]),
            (lines | {"backward": True, "after": 3}, []),
            ({"types": (PUBLISHED,), "names": ("lin",)}, []),
            ({"types": (PUBLISHED,)}, [3, 4, 5, 6, 7]),
            ({"types": (PUBLISHED,), "backward": True, "limit": 2}, [7, 6]),
            ({"types": (PUBLISHED,), "names": ("line", "note"), "after": 3}, [4, 5, 7]),
            ({"types": (EventType.STEP_COMPLETED, EventType.TIMER_FIRED)}, [1, 2]),
            ({"names": ("charge",)}, [1, 2, 6]),
            ({"names": ("charge",), "backward": True, "after": 6}, [2, 1]),
        ]
        for asked, numbers in wanted:
            told = await trial.store.history(row.id, 1, **asked)
            assert (asked, [event.number for event in told]) == (asked, numbers)
            assert all(event.payload == b"%d" % event.number for event in told if event.type is PUBLISHED)
        assert await trial.store.history(row.id, 2, **lines) == []
        assert await trial.store.history(trial.ids.new_id(), 1, **lines) == []

    async def test_of_the_answers_to_a_call_the_first_one_is_told_in_whichever_run_it_is(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        row = await trial.done(going_on(row, events=_values(row, "ask:1", "ask:2"), published=True))
        for run, names in ((1, ["ask:1", "ask:3"]), (2, ["ask:3", "ask:4"]), (3, ["ask:1", "ask:4"])):
            if run > row.run:
                row = replace(row, run=run, events=0)
            row = await trial.done(going_on(row, events=_answers(row, names), published=True))
        wanted = ["ask:1", "ask:2", "ask:3", "ask:4"]
        for run, first in ((1, {"ask:1": 1, "ask:3": 1, "ask:4": 2}), (3, {"ask:1": 3, "ask:4": 3})):
            told = await trial.store.history(row.id, run, types=ANSWERS, names=wanted, limit=10)
            assert {event.name: event.payload for event in told} == {name: b"%d" % of for name, of in first.items()}
        [one] = await trial.store.history(row.id, 1, types=ANSWERS, names=("ask:4", "ask:9"))
        assert (one.name, one.type, one.payload) == ("ask:4", EventType.CALL_REFUSED, b"2")
        assert await trial.store.history(trial.ids.new_id(), 1, types=ANSWERS, names=wanted) == []

    @pytest.mark.parametrize("free", [False, True])
    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_published_values_are_told_to_whoever_asks_for_such_news(
        self, trial: Trial, ground: Ground, elsewhere: bool, free: bool
    ) -> None:
        if not ground.hints or (elsewhere and not ground.shared):
            pytest.skip("nobody is told anything here; polling does it all")
        row = await trial.owned(await trial.worker())
        store = trial.ground.store() if elsewhere else trial.store
        if elsewhere:
            await store.open()
        heard: asyncio.Queue[Notification] = asyncio.Queue()
        stop = store.watch(heard.put_nowait)
        try:
            values: dict[str, Any] = {"events": _values(row, "line"), "published": True}
            await trial.commit(released(row, row.created_at, **values) if free else going_on(row, **values))
            async with asyncio.timeout(PATIENCE):
                while True:
                    notification = await heard.get()
                    if row.id in notification.published or notification.some_published:
                        break
        finally:
            stop()
            if elsewhere:
                await store.close()
