"""Parents: which ended processes have told a parent of their end, so that no operation lets them run again.

A parent takes one answer of each child and queued step, and its own retry starts the child or step anew: were both
retried, the effect would come twice. A child that its parent has abandoned, unless the parent has failed by it, or that
has lost its parent, goes its own way, and is commanded like any other process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from perdure.client.whole_rows import cut, rows_of
from perdure.errors import PayloadError, UnreadablePayload
from perdure.kernel.checkpoint import is_checkpoint
from perdure.kernel.child import begun, is_task
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.run import slot_text
from perdure.limits import LIST_ROWS
from perdure.store.base import Store

TOLD = "its parent was told that it ended: retry the parent, which starts it anew, or this one by itself"
AT_ONCE = 50
"""Of how many parents the histories are read at the same time."""


async def told_parents(store: Store, ended: Sequence[Process]) -> set[bytes]:
    """Which of these ended processes, each of which has a parent, only that parent's retry is to begin anew."""
    told = {row.id for row in ended if is_task(row.kind)}
    children: dict[bytes, set[bytes]] = {}
    for row in ended:
        if row.parent is not None and row.id not in told:
            children.setdefault(row.parent, set()).add(row.id)
    for parents in cut(await rows_of(store, list(children)), AT_ONCE):
        free = await asyncio.gather(*(_free(store, parent, children[parent.id]) for parent in parents))
        told.update(*(children[parent.id] - some for parent, some in zip(parents, free, strict=True)))
    return told


async def _free(store: Store, parent: Process, children: set[bytes]) -> set[bytes]:
    """Which of these children of a parent go their own way.

    A child that the present run does not name was begun anew by it. Only a machine forgets children that it still has:
    its history is folded away.
    """
    abandoned, left, before = dict[bytes, str](), set(children), 0
    while left:
        events = await store.history(
            parent.id, parent.run, after=before, limit=LIST_ROWS, backward=True, types=(EventType.CHILD_STARTED,)
        )
        if not events:
            break
        named = _named(events)
        found = left & named.keys()
        abandoned |= {id: slot_text(named[id]) for id in found if begun(named[id]).abandoned}
        left -= found
        before = events[-1].number
    anew = await _begun_anew(store, parent) if abandoned else None
    free = {id for id, slot in abandoned.items() if slot != anew}
    return free | left if left and _is_machine(parent) else free


def _named(events: Sequence[Event]) -> dict[bytes, Event]:
    """These records by the children that they name; one that is unreadable names none."""
    named: dict[bytes, Event] = {}
    for event in events:
        with suppress(PayloadError):
            named[begun(event).id_bytes] = event
    return named


async def _begun_anew(store: Store, parent: Process) -> str | None:
    """The place of what a parent has failed by: its retry begins that anew, also a child that it has abandoned."""
    if parent.status is not Status.FAILED:
        return None
    failed = await store.history(parent.id, parent.run, limit=1, backward=True, types=(EventType.STEP_FAILED,))
    return slot_text(failed[0]) if failed else None


def _is_machine(parent: Process) -> bool:
    try:
        return is_checkpoint(parent.state)
    except UnreadablePayload:
        return False  # to leave out too many repeats no effect
