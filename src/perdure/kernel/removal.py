"""A removal: a person takes a process away before retention does, or gives back the key of one that has ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import json, to_builtins
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.command import Verb, allow
from perdure.kernel.commit import Commit, Removal
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import FORMER_KEY, Process, merged
from perdure.kernel.transition import Sender, terminated


def removed(
    process: Process, sender: Sender, history: Sequence[Event] = (), *, now: int, force: bool = False
) -> Commit:
    """Delete a process that has ended, with its events, its messages and its key.

    With ``force`` one that has not ended is terminated in the same commit: its parent is told, its children are asked
    to end. Nothing of the process is left to record who asked.
    """
    if force and not process.final:
        return replace(terminated(process, sender, history, now=now), removes=Removal.PROCESS)
    allow(process, Verb.REMOVE)
    after = replace(process, version=process.version + 1, token=process.token + 1)
    return Commit(process.token, process.version, after, removes=Removal.PROCESS)


def key_released(process: Process, sender: Sender, *, now: int) -> Commit:
    """Give back the key of a process that has ended: the next start with this key begins another process.

    The row remembers it, for its input may be sealed for that key.
    """
    allow(process, Verb.RELEASE_KEY)
    if process.key is None:
        raise IllegalMove("cannot release the key of a process that has none, or whose key was released before")
    told = to_builtins(sender) | {"key": process.key}
    event = Event(process.events + 1, 0, EventType.KEY_RELEASED, now, payload=json.encode(told))
    after = replace(
        process,
        key=None,
        attributes=merged(process.attributes, {FORMER_KEY: process.key}),
        version=process.version + 1,
        token=process.token + 1,
        events=event.number,
    )
    return Commit(process.token, process.version, after, (event,), removes=Removal.KEY, attributes_set=True)
