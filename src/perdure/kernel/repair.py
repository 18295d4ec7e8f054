"""A repair: a person lets a broken machine go on with a method made for that, in place of the one that has failed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import child
from perdure.kernel.checkpoint import WAIT, Checkpoint, Repair, has_begun, last_turn, parted, unfinished, written
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import MALFORMED
from perdure.kernel.transition import Sender, forced


class RepairedBefore(IllegalMove):
    """A repair with this key was made before, whatever has come of it: there is nothing left to do."""


class _Keyed(Struct):
    key: str | None = None


_keyed = json.Decoder(_Keyed).decode


def repaired(
    process: Process,
    history: Sequence[Event],
    method: str,
    call: bytes,
    sender: Sender,
    *,
    key: str | None = None,
    now: int,
) -> Commit:
    """Give up the method that has broken a machine, and run another one next; ``call`` are its arguments.

    What waits in the inbox comes after it. Children of the method that is given up are asked to end; if that is the
    timer's, its time counts no more. Raises RepairedBefore if a repair with this key stands in the history.
    """
    if key is not None and any(one.type is EventType.REPAIRED and _key_of(one) == key for one in history):
        raise RepairedBefore(f"it was repaired with the key {key!r} before")
    if process.status is not Status.BROKEN:
        raise IllegalMove(f"cannot repair a process that is {process.status}: only a broken machine is repaired")
    if process.state is None or not has_begun(process.state):
        raise IllegalMove(
            "only a machine is repaired by a method, once it has begun; fix the cause and use `perdure retry`"
        )
    checkpoint, fields = parted(process.state)
    open = unfinished(process, history)
    repair = Repair(method, Raw(call), now, _timer_failed(checkpoint, open))
    ahead = replace(checkpoint, turn=last_turn(process, history), method=checkpoint.method + 1, letter=0, repair=repair)
    told = to_builtins(sender) | {"arguments": Raw(call)} | ({} if key is None else {"key": key})
    event = Event(process.events + 1, 0, EventType.REPAIRED, now, name=method, payload=json.encode(told))
    calm = replace(process, deaths=0, alone_deaths=0, state=written(ahead, fields))
    commit = forced(calm, Status.RUNNING, (event,), now, due_at=now)
    return replace(commit, sends=commit.sends + child.farewell(process.id, open))


def _timer_failed(checkpoint: Checkpoint, open: Sequence[Event]) -> bool:
    """Whether the method that is given up is the timer's: the wait before it has ended by its time, and by no letter.

    A letter that is heard in the turn in which the time comes is received first. A removal runs no method.
    """
    if checkpoint.repair is not None:  # that one has failed too, in place of the same method
        return checkpoint.repair.timer
    fired = next((one.turn for one in open if one.type is EventType.TIMER_FIRED and one.place.endswith(WAIT)), None)
    if fired is None or checkpoint.removal:
        return False
    return not any(one.type is EventType.MESSAGE_RECEIVED and one.turn <= fired for one in open)


def _key_of(event: Event) -> str | None:
    try:
        return _keyed(event.payload or b"{}").key
    except MALFORMED:
        return None  # whoever reads the history is told so there
