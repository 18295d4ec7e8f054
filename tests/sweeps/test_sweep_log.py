"""The healer watches itself: each pass is recorded, in one row a sweep, and any worker tells when none happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.client.recovery import Recovery
from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.kernel.note import Note
from perdure.kernel.sweep_pass import Passes
from perdure.runtime.alerts import Alert
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweep_log import AWAY_SECONDS, SweepLog
from perdure.runtime.sweep_round import began, left, saw
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.faults import Outage
from tests.sweeps.watch import Watch

QUIET = limits.SWEEP_SILENT_SECONDS + 2 * 5.0 + 1
"""Seconds without a pass after which people are told, for a sweep that passes every 5 s."""


class Told:
    """The alerts of one worker, as ``Engine(on_alert=)`` hears them."""

    def __init__(self, context: SweepContext) -> None:
        self._heard: list[str] = []
        context.alerts._on_alert = self.hear

    def hear(self, alert: Alert) -> None:
        assert alert.kind == "recovery"
        self._heard.append(alert.text)

    async def silent(self) -> list[str]:
        """What was told until now."""
        await asyncio.sleep(0)
        return self._heard


async def many(told: list[Told]) -> int:
    """How often people were told, by whichever worker."""
    return sum([len(await one.silent()) for one in told])


def passed(log: SweepLog, sweep: str, *, seen: int = 0, changed: int = 0, alone: int = 0) -> None:
    """Let one pass of a sweep begin and end here."""
    round = began(log._time.monotonic())
    log.began(sweep, round)
    saw(seen)
    left(alone)
    log.passed(sweep, round, changed)


def made(context: SweepContext, *sweeps: str) -> SweepLog:
    """The log of one worker that passes these sweeps every 5 s."""
    return SweepLog(context, dict.fromkeys(sweeps or ("idle",), 5.0))


async def looking(watch: Watch, seconds: float, *logs: SweepLog) -> None:
    """Let time pass, while these workers look again and again."""
    while seconds > 0:
        await watch.passed(min(seconds, AWAY_SECONDS))
        seconds -= AWAY_SECONDS
        for log in logs:
            await log.look()


async def stored(watch: Watch) -> dict[str, Any]:
    """What the store knows, by sweep."""
    return {view.sweep: view for view in await Recovery(watch.store).sweeps()}


async def test_what_the_passes_of_all_workers_did_is_added_up_in_one_row_a_sweep(watch: Watch) -> None:
    one, two = made(await watch.context(), "idle", "owner gone"), made(await watch.context(), "idle")
    passed(one, "idle", seen=500, changed=3, alone=2)
    passed(one, "owner gone")
    passed(two, "idle", seen=20, changed=4)
    await one.look()
    await watch.passed(1)
    await two.look()
    found = await stored(watch)
    idle = found["idle"]
    assert (idle.passes, idle.total_seen, idle.total_changed, idle.errors) == (2, 520, 7, 0)
    assert (idle.seen, idle.changed, idle.left) == (20, 4, 0), "of the last pass"
    assert found["owner gone"].passes == 1
    assert idle.by == watch.machine.name()
    for _ in range(50):
        passed(one, "idle", changed=1)
        await one.look()
    assert (await stored(watch))["idle"].total_changed == 57
    assert len(await watch.store.records(Note)) == 2, "bounded, however many passes there are"


async def test_a_pass_that_found_nothing_is_written_by_one_worker_in_ten_seconds(watch: Watch) -> None:
    logs = [made(await watch.context()) for _ in range(5)]
    for log in logs:
        passed(log, "idle")
    await logs[0].look()
    [note] = await watch.store.records(Note)
    for log in logs[1:]:
        await log.look()
    assert await watch.store.records(Note) == [note]
    await watch.passed(limits.SWEEP_LOG_SECONDS + 1)
    for log in logs[1:]:
        await log.look()
    assert (await watch.store.records(Note))[0].version == 2
    assert (await stored(watch))["idle"].passes == 2, "the others tell of theirs when it is their turn"


async def test_passes_that_could_not_be_written_are_told_later(watch: Watch) -> None:
    log = made(await watch.context())
    passed(log, "idle", changed=3)
    outage = Outage("records").upon(watch.store)
    outage.away = True
    with pytest.raises(StoreUnavailable):
        await log.look()
    outage.away = False
    passed(log, "idle", changed=4)
    await log.look()
    assert (await stored(watch))["idle"].total_changed == 7


async def look_unanswered(watch: Watch, log: SweepLog) -> None:
    """Look, and write what follows; the answer to that is lost."""
    before = await watch.store.store.records(Note)

    async def after(name: str, argument: object) -> None:
        if argument is Note and await watch.store.store.records(Note) != before:
            watch.store.after = nothing
            raise StoreUnavailable("the answer was lost")

    watch.store.after = after
    with pytest.raises(StoreUnavailable):
        await log.look()


async def look_cut_off(watch: Watch, log: SweepLog) -> None:
    """Look, and write nothing: the database goes away just before."""
    looks: list[str] = []

    async def before(name: str, argument: object) -> None:
        looks.append(name)
        if looks.count("records") == 2:
            watch.store.before = nothing
            raise StoreUnavailable("cut off")

    watch.store.before = before
    with pytest.raises(StoreUnavailable):
        await log.look()


async def nothing(name: str, argument: object) -> None:
    """Nothing goes wrong any more."""


@pytest.mark.parametrize("others", [0, 5], ids=["", "written over"])
async def test_passes_whose_answer_was_lost_count_once(watch: Watch, others: int) -> None:
    one, two = made(await watch.context()), made(await watch.context())
    passed(one, "idle", changed=3)
    await look_unanswered(watch, one)
    if others:
        passed(two, "idle", changed=others)
        await two.look()
    passed(one, "idle", changed=4)
    await one.look()
    assert (await stored(watch))["idle"].total_changed == 7 + others


async def test_passes_that_were_not_written_count_although_another_worker_has_written_since(watch: Watch) -> None:
    one, two = made(await watch.context()), made(await watch.context())
    passed(one, "idle", changed=3)
    await look_cut_off(watch, one)
    passed(two, "idle", changed=4)
    await two.look()
    await one.look()
    assert (await stored(watch))["idle"].total_changed == 7


@pytest.mark.parametrize("over", [False, True], ids=["", "written over"])
async def test_people_are_told_of_a_silence_although_the_answer_to_that_was_lost(watch: Watch, over: bool) -> None:
    contexts = [await watch.context(), await watch.context()]
    [one, two], told = [made(context) for context in contexts], [Told(context) for context in contexts]
    for log in (one, two):
        await log.look()
    await looking(watch, QUIET - 2, one, two)
    await watch.passed(2)
    await look_unanswered(watch, one)
    if over:
        two.began("idle", began(0.0))
        two.failed("idle", ValueError())
        await two.look()
    for log in (one, two, one):
        await log.look()
    assert await many(told) == 1


async def test_people_are_not_told_of_a_silence_that_has_ended_before_its_answer_is_known(watch: Watch) -> None:
    contexts = [await watch.context(), await watch.context()]
    [one, two], told = [made(context) for context in contexts], [Told(context) for context in contexts]
    for log in (one, two):
        await log.look()
    await looking(watch, QUIET - 2, one, two)
    await watch.passed(2)
    await look_unanswered(watch, one)
    await watch.passed(1)
    passed(two, "idle", changed=1)
    for log in (two, one):
        await log.look()
    assert await many(told) == 0


async def test_an_error_is_kept_by_its_class_and_is_no_pass(watch: Watch) -> None:
    log = made(await watch.context())
    log.began("idle", began(0.0))
    log.failed("idle", ValueError("a secret"))
    await log.look()
    idle = (await stored(watch))["idle"]
    assert (idle.at, idle.errors, idle.error) == (None, 1, "ValueError")


async def test_a_real_supervisor_records_what_it_read_freed_and_left_alone(watch: Watch) -> None:
    context = await watch.context()
    supervisor = Supervisor(context)
    ended = await watch.trial.worker("ended")
    rows = [await watch.trial.owned(ended) for _ in range(3)]
    await watch.store.retire(ended, None, False)
    recovery = Recovery(watch.store)
    [loop] = [loop for loop in supervisor.loops if loop.name == "sweep owner gone"]
    await recovery.pause(who="Ann")
    await loop._tick()
    await supervisor.log.look()
    gone = (await stored(watch))["owner gone"]
    assert (gone.seen, gone.changed, gone.left) == (3, 0, 3)
    await recovery.resume()
    await loop._tick()
    await supervisor.log.look()
    gone = (await stored(watch))["owner gone"]
    assert (gone.seen, gone.changed, gone.left, gone.passes) == (3, 3, 0, 2)
    assert [(await watch.sound(row)).owner for row in rows] == [None] * 3


async def test_any_worker_tells_once_that_nobody_passes_a_sweep_and_again_after_an_hour(watch: Watch) -> None:
    contexts = [await watch.context() for _ in range(3)]
    logs, told = [made(context) for context in contexts], [Told(context) for context in contexts]
    passed(logs[0], "idle")
    for log in logs:
        await log.look()
    logs[0].began("idle", began(watch.machine.monotonic()))  # and it never ends: this worker hangs
    for seconds, times in ((QUIET - 2, 0), (2, 1), (600, 1), (limits.SWEEP_REMINDED_SECONDS, 2)):
        await looking(watch, seconds, *logs[1:])
        assert await many(told) == times, seconds
    assert "sweep idle" in (await told[1].silent())[0] and "perdure recovery sweeps" in (await told[1].silent())[0]
    passed(logs[2], "idle")
    await logs[2].look()
    await looking(watch, QUIET + 1, *logs)
    assert await many(told) == 3, "after a pass it is another silence"


async def test_two_workers_that_notice_the_silence_at_one_instant_tell_of_it_once(watch: Watch) -> None:
    contexts = [await watch.context(), await watch.context()]
    told = [Told(context) for context in contexts]

    logs = [made(context) for context in contexts]
    for log in logs:
        await log.look()
    await looking(watch, QUIET - 2, *logs)
    await watch.passed(2)
    await watch.at_once(lambda context: _looked(logs.pop()), door="records")
    assert await many(told) == 1


async def _looked(log: SweepLog) -> int:
    await log.look()
    return 0


async def test_a_worker_that_begins_after_a_long_rest_is_no_alarm(watch: Watch) -> None:
    log = made(await watch.context())
    passed(log, "idle")
    await log.look()
    await watch.passed(24 * 3600)
    context = await watch.context()
    told, begun = Told(context), made(context)
    await begun.look()
    assert await told.silent() == []
    await looking(watch, QUIET, begun)
    assert len(await told.silent()) == 1


@pytest.mark.parametrize("fails", [True, False], ids=["looks fail", "nobody looks"])
async def test_an_outage_of_the_database_is_no_silence_of_the_sweeps(watch: Watch, fails: bool) -> None:
    context = await watch.context()
    told, log = Told(context), made(context)
    passed(log, "idle")
    await log.look()
    outage = Outage("records").upon(watch.store)
    for _ in range(10):
        await watch.passed(QUIET / 10)
        if fails:
            outage.away = True
            with pytest.raises(StoreUnavailable):
                await log.look()
            outage.away = False
    await log.look()
    assert await told.silent() == []
    await looking(watch, QUIET, log)
    assert len(await told.silent()) == 1


async def test_a_pass_that_ends_while_a_look_waits_for_the_store_is_no_silence(watch: Watch) -> None:
    context = await watch.context()
    told, log = Told(context), made(context)
    passed(log, "idle")
    await log.look()
    await looking(watch, QUIET - 2, log)
    await watch.passed(2)

    async def answers_late(name: str, argument: object) -> None:
        if name == "now":
            passed(log, "idle")

    watch.store.before = answers_late
    await log.look()
    assert await told.silent() == []


async def test_a_sweep_that_only_fails_is_silent(watch: Watch) -> None:
    context = await watch.context()
    told, log = Told(context), made(context)
    for _ in range(9):
        log.began("idle", began(0.0))
        log.failed("idle", ValueError())
        await log.look()
        await watch.passed(QUIET / 8)
    assert len(await told.silent()) == 1


async def test_a_pass_that_does_not_come_to_an_end_is_logged_once(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    log = made(await watch.context())
    log.began("idle", began(watch.machine.monotonic()))
    for _ in range(3):
        await watch.passed(limits.SWEEP_SILENT_SECONDS)
        await log.look()
    hung = [one.getMessage() for one in caplog.records if "does not come to an end" in one.getMessage()]
    assert len(hung) == 1 and "the sweep idle" in hung[0]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"at": "x"}', '{"at": null}', "\x7f"])
async def test_a_note_that_cannot_be_read_counts_as_none(watch: Watch, content: str) -> None:
    await watch.store.records(Note, [Note("sweep idle", 1, 1, content)])
    log = made(await watch.context())
    passed(log, "idle", changed=1)
    await log.look()
    assert (await stored(watch))["idle"].total_changed == 1


def test_a_time_ahead_of_the_clock_hides_no_silence() -> None:
    ahead = Passes(at=10**15, alarmed_at=10**15)
    assert ahead.silent(100 * SECOND, 0, 60, 3600)
    assert not Passes(at=50 * SECOND).silent(100 * SECOND, 0, 60, 3600)
