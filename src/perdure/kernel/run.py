"""A run: one pass over a process's history, its first event (the opening), and how the next run is opened.

A process opens its next run by itself when it continues as new; a person opens one by retrying or restarting it, and
this module decides what that run keeps. Old runs stay as they are and can be read. A new run remembers in which run
each step was first asked for, since that is part of the step's key (rule 21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Raw, Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import child, undo
from perdure.kernel.checkpoint import carried_over, has_begun, is_checkpoint, unfinished
from perdure.kernel.command import Verb, allow, gone_on
from perdure.kernel.commit import Commit
from perdure.kernel.event import RESULTS, Event, EventType
from perdure.kernel.kept import ended_from_outside, kept_around, last_good
from perdure.kernel.names import id_text
from perdure.kernel.notice import notices
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import reader
from perdure.kernel.transition import Sender, forced

T = TypeVar("T")


class Opening(Struct, frozen=True, omit_defaults=True):
    """The payload of a ``RUN_OPENED`` event.

    ``done`` is what was done (``retried``, ``restarted``, …), ``kept`` how many events were copied. ``origins`` and
    ``fresh`` say in which run a step was first asked for: ``origins`` by the number of the last event before it,
    ``fresh`` by its name and place. Cancels up to the message number ``void`` count no more. ``seed`` is the run that
    seeds the process's random numbers, if not the first. ``not_undone`` are dropped steps whose undo will not run.

    ``forked`` is the id of the process of which this one is a fork. Its ``seeds`` (hexadecimal) are those of the
    random numbers in turns that were copied, by the number of the last event copied with them.

    ``automatic`` counts the restarts in a row that no person has ordered, this one included.

    A run that the process itself opened has an ``input`` of its own; its first ``letters`` messages were heard and not
    received before, and ``seen`` is the highest number heard by then.
    """

    from_run: int
    kept: int
    origins: tuple[tuple[int, int], ...] = ()
    sender: dict[str, str] = {}
    done: str = "retried"
    fresh: dict[str, int] = {}
    void: int = 0
    seed: int = 0
    not_undone: tuple[str, ...] = ()
    input: Raw = Raw(b"")
    letters: int = 0
    seen: int = 0
    forked: str = ""
    seeds: tuple[tuple[int, str], ...] = ()
    automatic: int = 0

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)

    def origin(self, slot: str, last: int, run: int) -> int:
        """In which run a step (``charge:1``) was first asked for, after event ``last``; ``run`` is the present one."""
        first = next((first for upto, first in self.origins if last <= upto), run)
        return max(first, self.fresh.get(slot, 0))

    def seed_of(self, process: bytes) -> bytes:
        """The seed of the random numbers in all turns that were not copied from another process."""
        return process + self.seed.to_bytes(4, "big") if self.seed else process

    def seed_after(self, last: int, process: bytes) -> bytes:
        """The seed of the random numbers in the turn whose last event has that number."""
        copied = next((seed for upto, seed in self.seeds if last <= upto), None)
        return self.seed_of(process) if copied is None else bytes.fromhex(copied)

    def began_as(self) -> bytes:
        """The id of the process that began what this run shares with it."""
        return bytes.fromhex(self.seeds[0][1])[:16]


CONTINUED = "continued as new"
"""What is ``done`` in a run that the process opened by itself."""

TRIED_AGAIN = "tried again"
"""What is ``done`` in a run that another attempt of the workflow opened."""

EDITED = "begun with another input"
"""What is ``done`` in a run for which a person has edited the input."""

FIRST = Opening(0, 0)
"""Stands for the opening of the first run, which has no event."""


def same_beginning(before: Opening) -> dict[str, Any]:
    """What the openings of runs with one beginning share: the arguments, and the messages that came with them."""
    return {"input": before.input, "letters": before.letters, "seen": before.seen}


_decode = reader(Opening, "what opened this run")


def opening_of(history: Sequence[Event]) -> Opening:
    """What opened the run of this history."""
    if not history or history[0].type is not EventType.RUN_OPENED or history[0].payload is None:
        return FIRST
    return _decode(history[0].payload)


def moved(origins: Sequence[tuple[int, int]], numbers: Mapping[int, int], run: int) -> tuple[tuple[int, int], ...]:
    """The origins of a run that keeps events of run ``run``, which get new ``numbers``."""
    return (*renumbered(origins, numbers), (len(numbers) + 1, run))


def renumbered(marks: Sequence[tuple[int, T]], numbers: Mapping[int, int]) -> tuple[tuple[int, T], ...]:
    """What holds up to an event of one run, for a run that keeps events of it under new numbers."""
    return tuple((max((new for old, new in numbers.items() if old <= last), default=1), what) for last, what in marks)


def renewed(
    process: Process,
    input: bytes,
    late: Sequence[int],
    letters: Sequence[int],
    *,
    now: int,
    state: bytes | None = None,
    void: int = 0,
) -> Commit:
    """End the run of an owned process and open the next one, without an owner and due now.

    ``late`` are the numbers of the cancels that came too late: the new run hears them first. ``letters`` were received
    and not answered: they are put back into the inbox, where letters stay that were not received. Cancels up to the
    number ``void`` count as little as in this run: it may not have heard them all.
    The key, the deadline, the priority, the attributes and the version stay; progress is emptied, and so is the state
    but for the ``state`` of a machine.
    """
    opening = Opening(
        process.run,
        0,
        done=CONTINUED,
        sender={"who": f"process {id_text(process.id)}", "origin": "workflow"},
        void=void,
        seed=process.run + 1,
        input=Raw(input),
        letters=len(late),
        seen=process.seen,
    )
    # The cancels stay consumed by the run that heard them, so they cannot get lost: the new run only refers to them.
    events = (
        Event(1, 0, EventType.RUN_OPENED, now, payload=opening.encode()),
        *(Event(number, 1, EventType.MESSAGE_RECEIVED, now, message=wish) for number, wish in enumerate(late, 2)),
    )
    after = replace(followed(process, len(events), now), due_at=now, state=state)
    left = tuple((number, 0) for number in letters)
    return Commit(process.token, process.version, after, events, left, sends=notices(process, after))


def followed(process: Process, events: int, now: int) -> Process:
    """The row of an owned process that opens its next run by itself, with so many events, and lets go of its owner."""
    return replace(
        process,
        run=process.run + 1,
        version=process.version + 1,
        owner=None,
        reminder=False,
        events=events,
        awaiting=None,
        deaths=0,
        alone_deaths=0,
        state=None,
        progress=None,
        opened_at=now,
    )


def retried(process: Process, history: Sequence[Event], sender: Sender, *, now: int) -> Commit:
    """Let a failed, broken or held process go on from its last good event.

    A broken or held one goes on in its run, but for a machine that a step has broken. That and a failed one get a new
    run with a copy of what happened before the step that failed for good: that step gets fresh attempts under its old
    idempotency key, and messages that were received after it are offered again (rule 21). Refused if a step before that
    one was undone since; raises UnreadablePayload if what counts of its state cannot be read.
    """
    allow(process, Verb.RETRY)
    by_step = process.status is Status.BROKEN and _method_failed(process, history)
    if process.status is not Status.FAILED and not by_step:
        return gone_on(process, sender, now)
    open = unfinished(process, history)
    kept = last_good(open)
    refuse_what_was_undone(open, kept)
    return reopened(process, history, kept, sender, now)


def _method_failed(process: Process, history: Sequence[Event]) -> bool:
    """Whether it is a machine with a step that has failed in the method under way; raises UnreadablePayload.

    Without any step that has failed it does not count whether it is a machine.
    """
    if not _step_failed(history):
        return False
    return is_checkpoint(process.state) and _step_failed(unfinished(process, history))


def _step_failed(history: Sequence[Event]) -> bool:
    return any(event.type is EventType.STEP_FAILED for event in history)


def restarted(
    process: Process,
    history: Sequence[Event],
    sender: Sender,
    *,
    now: int,
    input: bytes | None = None,
    automatic: int = 0,
) -> Commit:
    """Begin again from the stored input, or from another one, in a new run that keeps nothing but the messages.

    Children that have not answered are asked to end. Every message is offered again, except that earlier cancels count
    no more. Nothing is undone: the opening lists the steps that should have been. Raises IllegalMove for a machine that
    has begun, and UnreadablePayload if it cannot be seen whether it is one.
    """
    allow(process, Verb.RESTART)
    if has_begun(process.state):
        raise IllegalMove(
            "cannot restart a machine: its fields would be lost. Fix the cause and use `perdure retry`, or terminate "
            "it and start another one"
        )
    before = opening_of(history)
    signals = [event for event in history[1 : before.letters + 1] if event.name]
    letters = [replace(event, number=number, at=now) for number, event in enumerate(signals, 2)]
    blank = replace(process, opened_at=now if letters else None, state=None, progress=None)
    left = undo.listed(undo.owed(history))
    opening = Opening(
        process.run, 0, done="restarted", void=process.inbox, seed=process.run + 1, not_undone=left, automatic=automatic
    )
    opening = replace(opening, **same_beginning(before) | {"letters": len(letters)})
    if input is not None:
        opening = replace(opening, input=Raw(input), done=EDITED)
    commit = _open(blank, letters, opening, sender, now)
    return replace(commit, sends=commit.sends + child.farewell(process.id, history))


def restarted_from(process: Process, history: Sequence[Event], step: str, sender: Sender, *, now: int) -> Commit:
    """Run a step again, and what followed it, in a new run; ``step`` is its name, or name and place (``charge:2``).

    Everything before the step is kept. Later results are kept as ``RESULT_KEPT``: one counts if the step that it
    belongs to is open at the replay, so that the code had asked for it by then. The step runs again under a fresh
    idempotency key; children started later are asked to end. Refused if a step that would be kept was undone since.
    """
    allow(process, Verb.RESTART_FROM)
    whole, history = history, unfinished(process, history)
    chosen = answered(history, step)
    text = slot_text(chosen)
    prefix, beside = kept_around(history, chosen)
    refuse_what_was_undone(history, prefix, chosen)
    kept = [*prefix, *beside]
    opening = Opening(process.run, len(prefix), done=f"restarted at {text}", fresh={text: process.run + 1})
    commit = reopened(replace(process, progress=None), whole, kept, sender, now, opening)
    stays = {event.number for event in prefix}
    return replace(commit, sends=commit.sends + child.farewell(process.id, _without_children(history, stays)))


def _without_children(history: Sequence[Event], stays: set[int]) -> list[Event]:
    return [event for event in history if event.type is not EventType.CHILD_STARTED or event.number not in stays]


def answered(history: Sequence[Event], step: str) -> Event:
    """The event with the answer to the step of that name, or name and place; raises IllegalMove."""
    found = [event for event in history if event.type in RESULTS and step in (event.name, slot_text(event))]
    if not found:
        raise IllegalMove(f"no step {step!r} has been answered in this run; `perdure history` lists those that were")
    if len(found) > 1:
        raise IllegalMove(f"which {step!r}: {', '.join(map(slot_text, found))}? Name one of them with its place")
    return found[0]


def refuse_what_was_undone(history: Sequence[Event], kept: Sequence[Event], again: Event | None = None) -> None:
    """Raise IllegalMove if a step that was undone would count as done; the step that runs ``again`` does not."""
    undone = undo.undone(history)
    if not undone:
        return
    if again is not None:
        owed = set(undo.owed(kept)) - {undo.undoes(again.place) or slot_text(again)}
        undone = [step for step in undone[len(undo.undone(kept)) :] if step in owed]
    elif ended_from_outside(history) or any(event.type is EventType.STEP_FAILED for event in history):
        undone = undone[len(undo.undone(kept)) :]
    if undone:
        verb = "retry" if again is None else f"go on at {slot_text(again)} with"
        steps = ", ".join(undo.listed(undone))
        raise IllegalMove(
            f"cannot {verb} what was compensated: {steps} would count as done. Start a new run with `perdure restart`."
        )


def reopened(
    process: Process,
    history: Sequence[Event],
    kept: Sequence[Event],
    sender: Sender,
    now: int,
    opening: Opening | None = None,
) -> Commit:
    """A new run that keeps some events under new numbers, and in which run each of their steps was first asked for.

    The letters of a machine's methods that have ended are kept too: letters that a run does not have are offered again.
    """
    before = opening_of(history)
    opening = opening or Opening(process.run, len(kept))
    open = unfinished(process, history)
    ended: list[Event] = []
    if open is not history:
        left = {event.number for event in open}
        ended = [one for one in history if one.type is EventType.MESSAGE_RECEIVED and one.number not in left]
    kept = [*ended, *kept]
    numbers = {event.number: number for number, event in enumerate(kept, 2)}
    dropped: list[str] = []
    if opening.fresh:
        still = undo.owed(kept)
        dropped = [step for step in undo.owed(open) if step in opening.fresh or step not in still]
    opening = replace(
        opening,
        kept=len(ended) + opening.kept,
        origins=moved(before.origins, numbers, process.run),
        fresh=before.fresh | opening.fresh,
        void=process.inbox if opening.fresh else before.void,
        seed=before.seed,
        forked=before.forked,
        seeds=renumbered(before.seeds, numbers),
        not_undone=undo.listed(dropped),
        **same_beginning(before),
    )
    return _open(process, [replace(event, number=numbers[event.number]) for event in kept], opening, sender, now)


def _open(process: Process, kept: Sequence[Event], opening: Opening, sender: Sender, now: int) -> Commit:
    payload = replace(opening, sender=to_builtins(sender)).encode()
    opened = Event(1, 0, EventType.RUN_OPENED, now, payload=payload)
    seen = max((event.message or 0 for event in kept), default=0)
    seen = max(seen, opening.seen)
    state = carried_over(process, process.run + 1)
    row = replace(
        process, run=process.run + 1, events=0, seen=seen, deaths=0, alone_deaths=0, deadline=None, state=state
    )
    commit = forced(row, Status.RUNNING, (opened, *kept), now, due_at=now)
    return replace(commit, offered=seen + 1, sends=notices(process, commit.after))


def slot_text(event: Event) -> str:
    """A step as people name it: ``charge:1``, name and place."""
    return f"{event.name}:{event.place}"
