"""An adoption: how a process that was claimed comes to be held here, from memory or by a replay of its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import json

from perdure.kernel.claim import Claimed
from perdure.kernel.event import Event, EventType
from perdure.kernel.integrity import flaw, flaw_of_news
from perdure.kernel.names import id_text
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.transition import AUTOMATIC, Rescuer
from perdure.runtime import handing_back, release, revival, turn
from perdure.runtime.instance import Instance
from perdure.runtime.loops import loop_of
from perdure.runtime.process_cache import ends_with
from perdure.runtime.replay import Replay

if TYPE_CHECKING:
    from perdure.runtime.scheduler import Scheduler


def adopt(scheduler: Scheduler, claimed: Claimed, sent: float) -> Iterator[None]:
    """Hold a claimed process: bring it to where it was, deliver its unheard messages, go on.

    A long history is replayed in portions: where this yields, the event loop may have a breath. ``sent`` is when the
    claim was sent, by the monotonic clock.
    """
    process = claimed.process
    if (late := scheduler.instances.get(process.id)) is not None:
        scheduler.drop(late)  # a command elsewhere has taken it from us, and we have claimed it again
    scheduler.telemetry.counters["claims"] += 1
    kept = scheduler.cache.take(process)
    lease_end = sent + scheduler.lease_seconds
    if claimed.cached:
        if kept is not None and ends_with(kept, claimed.events[-1:]) and not release.to_end(claimed):
            kept.renewed(lease_end, process)
            _go_on_from_memory(scheduler, kept, claimed)
        else:
            if kept is not None:
                kept.drop()
            # Its history was not read. It is handed back, and comes with it: it is not in memory any more.
            scheduler.release(_made(scheduler, claimed, lease_end))
        return
    if kept is not None:
        kept.drop()
    if process.events:
        scheduler.telemetry.counters["cache_misses"] += 1
    instance = _made(scheduler, claimed, lease_end)
    if claimed.was_owned_by is not None:  # first of all: however it is let go, its history tells of this
        _note_takeover(scheduler, instance, claimed.was_owned_by)
    taken_over = instance.events[-1:]
    trouble = flaw(process, claimed.events, claimed.messages, cut=claimed.cut) or claimed.trouble
    if trouble is not None:
        scheduler.unreadable.let_go(instance, trouble, claimed.events)
        return
    try:
        if _let_go(scheduler, instance, claimed):
            return
        past = Replay(instance, claimed.events, claimed.messages)
        for _ in _replayed(scheduler, instance, past.run()):
            yield
            if instance.gone:
                return
        scheduler.telemetry.counters["messages"] += instance.hear(claimed.messages)
    except Exception as error:  # a misfit, or code or a payload that cannot be opened: a person must see it
        if not handing_back.short(scheduler, instance, error):
            scheduler.unreadable.misfit(instance, claimed.events, error)
        return
    if taken_over:
        past.lose(taken_over[0])
    if past.loss is not None and revival.put_off(scheduler, instance, past):
        return
    if claimed.cut:
        instance.inbox.await_messages(process.inbox)
    _go_on(scheduler, instance, claimed.events)


def _note_takeover(scheduler: Scheduler, instance: Instance, before: bytes) -> None:
    """Count and record that a process goes on here since the lease of its worker ``before`` has lapsed."""
    scheduler.telemetry.counters["takeovers"] += 1
    scheduler.telemetry.revived((instance.process.kind,))
    rescuer = Rescuer(scheduler.parts.machine.name(), "claim")
    evidence = {"worker": id_text(before), "lease": "lapsed", "origin": AUTOMATIC}
    instance.note(EventType.REVIVED, scheduler.time.now(), json.encode(evidence | rescuer._asdict()))


def _let_go(scheduler: Scheduler, instance: Instance, claimed: Claimed) -> bool:
    """Whether a claimed process is let go at once, before its code runs."""
    if release.carried_out(scheduler, instance, claimed) or release.too_late(scheduler, instance):
        return True
    if claimed.process.key is not None and release.begun(scheduler, instance):
        return True
    return bool(claimed.events) and revival.goes_round(scheduler, instance, claimed.events)


def _replayed(scheduler: Scheduler, instance: Instance, portions: Iterator[None]) -> Iterator[None]:
    """A replay, whose time is measured if it has a history; what else the loop does between its portions counts too."""
    began = scheduler.time.monotonic()
    scheduler.replaying.add(instance)
    try:
        yield from portions
    finally:
        scheduler.replaying.discard(instance)
    if instance.process.events:
        scheduler.telemetry.took("replay", scheduler.time.monotonic() - began)


def _made(scheduler: Scheduler, claimed: Claimed, lease_end: float) -> Instance:
    process = claimed.process
    code = scheduler.registry.code_of(process.kind, process.code)
    loop = loop_of(process, code, scheduler.parts.policies, process.seen if claimed.backlog else 0)
    instance = scheduler.instances[process.id] = Instance(process, code, loop, lease_end, claimed.events)
    return instance


def _go_on_from_memory(scheduler: Scheduler, instance: Instance, claimed: Claimed) -> None:
    scheduler.instances[instance.process.id] = instance
    scheduler.telemetry.counters["cache_hits"] += 1
    trouble = flaw_of_news(instance.process, claimed.messages, cut=claimed.cut) or claimed.trouble
    if trouble is not None:
        scheduler.unreadable.let_go(instance, trouble)
    elif not release.too_late(scheduler, instance) and scheduler.unreadable.hear(instance, claimed.messages):
        if claimed.cut:
            instance.inbox.await_messages(claimed.process.inbox)
        scheduler.bringing.recalled(instance)
        _go_on(scheduler, instance)


def _go_on(scheduler: Scheduler, instance: Instance, replayed: Sequence[Event] | None = None) -> None:
    if replayed is not None and is_suspect(instance.process):
        revival.announce(instance, replayed, scheduler.time.now())
    if turn.must_fetch(instance) or instance.inbox.unheard:
        scheduler.await_messages(instance)
    elif instance.inputs or instance.loop.due_timers(scheduler.time.now()):
        scheduler.feed(instance)
    else:
        scheduler.settle(instance)
