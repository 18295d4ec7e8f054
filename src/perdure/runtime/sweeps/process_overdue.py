"""Sweep: processes past their deadline. They end as failed, without a turn, whichever worker holds them.

Those that were asked to cancel by then, and have not ended, are terminated in the name of the sender who asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import json

from perdure.authoring.task import may_end_late
from perdure.errors import StoreUnavailable
from perdure.kernel import transition
from perdure.kernel.child import beforehand, is_task, told_first
from perdure.kernel.command import held, until_of
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import MALFORMED
from perdure.kernel.transition import Sender
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue, Search

SECONDS = 1.0
COUNTER = "processes_expired"
OVERDUE = Overdue.EXPIRED


async def sweep(context: SweepContext) -> int:
    """End up to one batch of overdue processes."""
    rows = await context.pages[OVERDUE].next()
    if not rows or not await context.may_recover("processes over their deadlines", len(rows)):
        context.pages[OVERDUE].rewind()
        return 0
    rows = await _without_those_at_work(context, rows)
    letters = await context.store.messages([(row.id, 0) for row in rows if row.inbox])
    commits: list[Commit] = []
    for row in rows:
        with context.each(row, StoreUnavailable):
            # Its error says what should have been undone; whatever happens meanwhile has a newer version, and wins.
            history = await context.store.history(row.id, row.run, limit=row.events) if row.events else ()
            with context.each(row):
                commits += await _decided(context, row, letters, history)
    return len(await context.write(commits))


async def _decided(
    context: SweepContext, row: Process, letters: Sequence[Message], history: Sequence[Event]
) -> tuple[Commit, ...]:
    """How one row ends; nothing if others were quicker."""
    commit = _ended(row, letters, history, context.time.now())
    if row.status is not Status.RUNNING or not (orders := beforehand(commit.sends)):
        return (commit,)
    # Else the answers of the first children to be told would let it go on to another end, while the rest are told.
    why = f"it is over its deadline: {told_first(orders)}"
    pause = held(row, Sender("perdure", why, "supervisor"), now=context.time.now(), idle_at=context.time.idle_at())
    # If we die here or later it is held and over its deadline: the next round ends it.
    if not await context.write([pause]):
        return ()
    return (_ended(pause.after, letters, (*history, *pause.events), context.time.now()),)


async def _without_those_at_work(context: SweepContext, rows: Sequence[Process]) -> list[Process]:
    """Leave out tasks with a running attempt that may end late: the worker that holds them begins no other attempt.

    A task with a message is not left out: it may be asked to end by this very deadline.
    """
    now = context.time.now()
    tasks = [row for row in rows if is_task(row.kind) and not row.inbox]
    held = [row.id for row in tasks if row.owner is not None and (row.due_at or 0) > now]
    found = await context.store.search(Search(ids=tuple(held), limit=len(held))) if held else []
    late = {row.id for row in found if may_end_late(row)}
    return [row for row in rows if row.id not in late]


def _ended(row: Process, letters: Sequence[Message], history: Sequence[Event], now: int) -> Commit:
    for letter in letters:
        if letter.process == row.id and letter.type is MessageType.CANCEL and until_of(letter) == row.deadline:
            return transition.terminated(row, _who(letter), history, now=now, asked=True)
    return transition.expired(row, history, now=now)


def _who(letter: Message) -> Sender:
    try:
        return json.decode(letter.sender or b"{}", type=Sender)
    except MALFORMED:  # it ends all the same: that it was asked to, and by when, can be read
        return Sender(why="who asked for it cannot be read")
