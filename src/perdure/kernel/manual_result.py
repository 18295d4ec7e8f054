"""A manual result: a person gives a step its result, or skips the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import child
from perdure.kernel.checkpoint import unfinished
from perdure.kernel.command import Verb, allow, gone_on
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.kept import kept_before, last_good
from perdure.kernel.names import check_name
from perdure.kernel.process import Process, Status
from perdure.kernel.run import refuse_what_was_undone, reopened
from perdure.kernel.stored import under_way
from perdure.kernel.transition import Sender, forced
from perdure.kernel.undo import name_and_place

_SHOWN = 10
_NO_STEPS = frozenset({EventType.TIMER_FIRED, EventType.SIGNAL_SENT})


class NothingOpen(IllegalMove):
    """No step of that name, given without its place, is known to be open; its worker may report one soon."""


def set_by_hand(
    process: Process,
    history: Sequence[Event],
    step: str,
    value: bytes,
    sender: Sender,
    *,
    now: int,
    skipped: bool = False,
) -> Commit:
    """Record a result that a person gives, for a step that is open or has failed; ``value`` is JSON.

    ``step`` is its name, or name and place (``charge:2``). A failed step gets its result in a new run, as at a retry.
    Only the replay shows whether the code asks for the step and can read the value: if not, the process becomes
    broken. A held process stays held. A child in the step's place is asked to end.
    """
    allow(process, Verb.SKIP if skipped else Verb.SET_RESULT)
    if process.opened_at is None:
        raise IllegalMove("it has not begun, so no step of it is open; try again when a worker has begun it")
    whole, history = history, unfinished(process, history)
    slot = _open_slot(process, history, step)
    failed = next((e for e in history if e.type is EventType.STEP_FAILED and (e.name, e.place) == slot), None)
    if failed is None and process.status is not Status.FAILED:
        commit = _as_it_is(process, sender, now)
    else:
        kept = last_good(history) if failed is None else kept_before(history, failed)
        refuse_what_was_undone(history, kept, failed)
        commit = reopened(process, whole, kept, sender, now)
        history = commit.events
    there = [event for event in history if (event.name, event.place) == slot]
    commit = replace(commit, sends=commit.sends + child.farewell(process.id, there))
    return _recorded(commit, process, history, slot, value, sender, now, skipped)


def _as_it_is(process: Process, sender: Sender, now: int) -> Commit:
    """Take the row from its owner; a broken process goes on."""
    if process.status is Status.BROKEN:
        return gone_on(process, sender, now)
    due_at = now if process.status is Status.RUNNING else process.due_at
    return forced(process, process.status, (), now, error=process.error, due_at=due_at)


def _recorded(
    commit: Commit,
    process: Process,
    history: Sequence[Event],
    slot: tuple[str, str],
    value: bytes,
    sender: Sender,
    now: int,
    skipped: bool,
) -> Commit:
    """Add to the commit who has set the result, then the result as a turn of its own."""
    name, place = slot
    number = commit.after.events
    turn = max((event.turn for event in history), default=0) + 1
    at = max(now, commit.after.opened_at or 0, *(event.at for event in history if event.turn))
    type = EventType.SKIPPED if skipped else EventType.SET_BY_HAND
    events: tuple[Event, ...] = (
        Event(number + 1, 0, type, now, place, name, sender.encode()),
        Event(number + 2, turn, EventType.STEP_COMPLETED, at, place, name, value),
    )
    after = commit.after
    if process.status is Status.HELD and after.status is not Status.HELD:
        events += (Event(number + 3, 0, EventType.HELD, now, payload=sender.encode()),)
        after = replace(after, status=Status.HELD, reminder=True, due_at=process.due_at, error=process.error)
    return replace(commit, events=commit.events + events, after=replace(after, events=number + len(events)))


def _open_slot(process: Process, history: Sequence[Event], step: str) -> tuple[str, str]:
    """Name and place of the one step that is meant and has no result yet; raises IllegalMove."""
    known = {(event.name, event.place) for event in history if event.place and event.type not in _NO_STEPS}
    known |= set(filter(None, map(name_and_place, under_way(process.progress))))
    done = {(event.name, event.place) for event in history if event.type is EventType.STEP_COMPLETED}
    exact = next((slot for slot in known if ":".join(slot) == step), None)
    if exact is None and (named := name_and_place(step)) is not None:
        exact = check_name(named[0], "the name of the step"), check_name(named[1], "the place of the step")
    open = {slot for slot in known if slot[0] == step} - done if exact is None else {exact}
    if exact in done:
        raise IllegalMove(f"step {step!r} has its result; to have another one, restart from that step")
    if len(open) == 1:
        return open.pop()
    if open:
        raise IllegalMove(f"which {step!r}: {_listed(open)}? Name one of them with its place")
    if any(name == step for name, _ in done):
        raise NothingOpen(f"step {step!r} has its result; to have another one, restart from that step, or name a place")
    others = f"; without a result are {_listed(known - done)}" if known - done else ""
    raise NothingOpen(
        f"nothing is known yet of a step {step!r}; name it with its place, like {step}:1 for the first{others}"
    )


def _listed(slots: Iterable[tuple[str, str]]) -> str:
    return ", ".join(sorted(map(":".join, slots))[:_SHOWN])
