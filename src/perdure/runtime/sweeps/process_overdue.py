"""Sweep: processes past their deadline. They end as failed, without a turn, whichever worker holds them.

Those that were asked to cancel by then, and have not ended, are terminated in the name of the sender who asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure import limits
from perdure.authoring.task import may_end_late
from perdure.errors import StoreUnavailable
from perdure.kernel import transition
from perdure.kernel.child import beforehand, is_task, told_first
from perdure.kernel.command import held, until_of
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue, Search, Store, every_message

SECONDS = 1.0
COUNTER = "processes_expired"
OVERDUE = Overdue.EXPIRED


async def sweep(context: SweepContext) -> int:
    """End up to one batch of overdue processes."""
    rows: Sequence[Process] = await context.pages[OVERDUE].next()
    if not rows or not await context.may_recover("processes over their deadlines", len(rows)):
        context.pages[OVERDUE].rewind()
        return 0
    rows = await _without_those_at_work(context, rows)
    commits: list[Commit] = []
    for row in rows:
        with context.each(row, StoreUnavailable):
            # Its error says what should have been undone; whatever happens meanwhile has a newer version, and wins.
            history = await context.store.history(row.id, row.run, limit=row.events) if row.events else ()
            wish = await _wish(context.store, row) if row.inbox else None
            with context.each(row):
                commits += await _decided(context, row, wish, history)
    return len(await context.write(commits))


async def _decided(
    context: SweepContext, row: Process, wish: Message | None, history: Sequence[Event]
) -> tuple[Commit, ...]:
    """How one row ends; nothing if others were quicker."""
    commit = _ended(row, wish, history, context.time.now())
    if row.status is not Status.RUNNING or not (orders := beforehand(commit.sends)):
        return (commit,)
    # Else the answers of the first children to be told would let it go on to another end, while the rest are told.
    why = f"it is over its deadline: {told_first(orders)}"
    pause = held(row, Sender("perdure", why, "supervisor"), now=context.time.now(), idle_at=context.time.idle_at())
    # If we die here or later it is held and over its deadline: the next round ends it.
    return tuple(
        _ended(paused.after, wish, (*history, *paused.events), context.time.now())
        for paused in await context.write([pause])
    )


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


async def _wish(store: Store, row: Process) -> Message | None:
    """The request to cancel by the deadline of this row, if there is one in its inbox; of several, the first."""
    found: Message | None = None
    async for messages in every_message(store, [(row.id, 0)], most=limits.HEARD_BYTES):
        for one in messages:
            if found is None and one.type is MessageType.CANCEL and until_of(one) == row.deadline:
                found = one
    return found


def _ended(row: Process, wish: Message | None, history: Sequence[Event], now: int) -> Commit:
    if wish is None:
        return transition.expired(row, history, now=now)
    return transition.terminated(row, Sender.read(wish.sender), history, now=now, asked=True)
