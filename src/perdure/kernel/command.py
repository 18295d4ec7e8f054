"""A command: what a person orders a process to do, decided from its row and its history without any of its code.

Each function gives the one commit to write, which takes the row from its owner (rule 22) and records who asked and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message
from perdure.kernel.notice import notices
from perdure.kernel.process import FINAL, UNFINISHED, Process, Status
from perdure.kernel.stored import MALFORMED
from perdure.kernel.transition import Sender, forced

_OPEN = frozenset(UNFINISHED)


class Verb(StrEnum):
    """What a person may order, as an error names it."""

    HOLD = "hold"
    RESUME = "resume"
    RETRY = "retry"
    RESTART = "restart"
    RESTART_FROM = "restart from a step of"
    SET_RESULT = "set the result of a step of"
    SKIP = "skip a step of"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    FAIL = "fail"
    REMOVE = "remove"
    RELEASE_KEY = "release the key of"
    MOVE = "move"
    SET_PRIORITY = "set the priority of"
    SET_DEADLINE = "set the deadline of"


ALLOWED: Mapping[Verb, frozenset[Status]] = {
    Verb.HOLD: frozenset({Status.RUNNING}),
    Verb.RESUME: frozenset({Status.HELD}),
    Verb.RETRY: frozenset({Status.HELD, Status.BROKEN, Status.FAILED}),
    Verb.RESTART: frozenset(Status),
    Verb.RESTART_FROM: frozenset(Status),
    Verb.SET_RESULT: _OPEN | {Status.FAILED},
    Verb.SKIP: _OPEN | {Status.FAILED},
    Verb.CANCEL: _OPEN,
    Verb.TERMINATE: _OPEN,
    Verb.FAIL: _OPEN,
    Verb.REMOVE: FINAL,
    Verb.RELEASE_KEY: FINAL,
    Verb.MOVE: _OPEN | {Status.FAILED},
    Verb.SET_PRIORITY: _OPEN,
    Verb.SET_DEADLINE: _OPEN,
}
"""Which command fits which status."""

_FORCE = (
    "end it first, or force the removal (`perdure rm --force`), which terminates it and leaves nothing to go on with"
)
_ADVICE = {
    (Verb.HOLD, Status.HELD): "there is nothing to do",
    (Verb.HOLD, Status.BROKEN): "it waits for a person already",
    (Verb.RESUME, Status.RUNNING): "it goes on by itself",
    (Verb.RESUME, Status.BROKEN): "fix the cause and use `perdure retry`",
    (Verb.RESUME, Status.FAILED): "fix the cause and use `perdure retry`",
    (Verb.RETRY, Status.RUNNING): "it goes on by itself",
    **{(Verb.REMOVE, status): _FORCE for status in _OPEN},
}


def allow(process: Process, verb: Verb) -> None:
    """Raise IllegalMove unless the command fits the process's status."""
    if process.status not in ALLOWED[verb]:
        advice = _ADVICE.get((verb, process.status))
        text = f"cannot {verb} a process that is {process.status}"
        raise IllegalMove(f"{text}: {advice}" if advice else f"{text}; see its state with `perdure show`")


# -- pausing ---------------------------------------------------------------------------------------------------------


def held(process: Process, sender: Sender, *, now: int, idle_at: int, above: int = 0) -> Commit:
    """Pause a process: steps in flight are fenced off and begin again, under their keys, when it is resumed.

    ``above`` is the highest token that may have been given out, if the row does not show it.
    """
    allow(process, Verb.HOLD)
    why = f" because: {sender.why}" if sender.why else ""
    error = Failure(type="Held", message=f"by {sender.who or 'somebody'}{why}")
    event = Event(process.events + 1, 0, EventType.HELD, now, payload=sender.encode())
    return forced(process, Status.HELD, (event,), now, error=error.encode(), due_at=idle_at, above=above)


def resumed(process: Process, sender: Sender, *, now: int) -> Commit:
    """Let a held process go on where it was."""
    allow(process, Verb.RESUME)
    return gone_on(process, sender, now)


def gone_on(process: Process, sender: Sender, now: int) -> Commit:
    """Let a held or broken process go on in its run; its deaths are forgotten."""
    event = Event(process.events + 1, 0, EventType.RESUMED, now, payload=sender.encode())
    calm = replace(process, deaths=0, alone_deaths=0)
    return forced(calm, Status.RUNNING, (event,), now, due_at=now)


# -- cancelling with a deadline --------------------------------------------------------------------------------------


class Patience(Struct, frozen=True):
    """What a cancel says beside its sender: when it is enforced (microseconds by the store's clock)."""

    until: int | None = None


_patience = json.Decoder(Patience).decode


def wish(sender: Sender, until: int) -> bytes:
    """The payload of a cancel that is enforced at ``until``."""
    return json.encode(to_builtins(sender) | {"until": until})


def until_of(message: Message) -> int | None:
    """When a cancel is enforced, or None if it is not."""
    try:
        return _patience(message.payload).until
    except MALFORMED:
        return None


def sooner(deadline: int | None, until: int) -> int:
    """The earlier of a process's deadline (if any) and ``until``."""
    return until if deadline is None else min(deadline, until)


def bounded(process: Process, sender: Sender, until: int, *, now: int) -> Commit:
    """Give a process a time at which it is ended by force; the cancel in its inbox names the sender too.

    A row without an owner keeps everything else. An owned row is taken from its owner, which did not react.
    """
    allow(process, Verb.CANCEL)
    event = Event(process.events + 1, 0, EventType.DEADLINE_SET, now, payload=wish(sender, until))
    urgent = replace(process, deadline=sooner(process.deadline, until))
    if process.owner is not None:
        return forced(urgent, Status.RUNNING, (event,), now, due_at=now)
    after = replace(urgent, version=process.version + 1, events=process.events + 1)
    return Commit(process.token, process.version, after, (event,), sends=notices(process, after))
