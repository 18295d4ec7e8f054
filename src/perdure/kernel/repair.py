"""A repair: a person lets a broken machine go on with a method made for that, in place of the one that has failed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct, json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import child
from perdure.kernel.checkpoint import Repair, has_begun, last_turn, parted, unfinished, written
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

    What waits in the inbox comes after it. Children of the method that is given up are asked to end. Raises
    RepairedBefore if a repair with this key stands in the history.
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
    repair = Repair(method, Raw(call), now)
    ahead = replace(checkpoint, turn=last_turn(process, history), method=checkpoint.method + 1, letter=0, repair=repair)
    told = to_builtins(sender) | {"arguments": Raw(call)} | ({} if key is None else {"key": key})
    event = Event(process.events + 1, 0, EventType.REPAIRED, now, name=method, payload=json.encode(told))
    calm = replace(process, deaths=0, alone_deaths=0, state=written(ahead, fields))
    commit = forced(calm, Status.RUNNING, (event,), now, due_at=now)
    return replace(commit, sends=commit.sends + child.farewell(process.id, unfinished(process, history)))


def _key_of(event: Event) -> str | None:
    try:
        return _keyed(event.payload or b"{}").key
    except MALFORMED:
        return None  # whoever reads the history is told so there
