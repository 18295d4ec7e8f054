"""Claims on PostgreSQL: what claimed rows hold is read in later statements (rule 3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from perdure import limits
from perdure.errors import DamagedRecord
from perdure.kernel.claim import Claim, Claimed, lacks
from perdure.kernel.event import Event
from perdure.kernel.integrity import lacking
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.store.postgres import records as row
from perdure.store.postgres.connection import PostgresConnection


class _Held(NamedTuple):
    """What claimed rows hold, by the process; ``backlog`` are those whose letters wait, ``holes`` lack some of them.

    Of those that are ``cut`` not all unheard messages were read.
    """

    events: defaultdict[bytes, list[Event]]
    messages: defaultdict[bytes, list[Message]]
    backlog: set[bytes]
    holes: dict[bytes, DamagedRecord]
    cut: set[bytes]


async def read(
    writes: PostgresConnection, claim: Claim, taken: Sequence[tuple[bytes | None, Process]]
) -> tuple[Claimed, ...]:
    """The taken rows, given with their former owners, and what they hold; in the order given."""
    held = await _held(writes, claim, [process for _, process in taken])
    return tuple(
        Claimed(
            process,
            tuple(held.events[process.id]),
            tuple(held.messages[process.id]),
            before,
            held.holes.get(process.id),
            process.id in held.backlog,
            claim.has(process),
            process.id in held.cut,
        )
        for before, process in taken
    )


async def _held(writes: PostgresConnection, claim: Claim, claimed: Sequence[Process]) -> _Held:
    """What the claimed rows hold; of those in the claimant's memory, only the last event and unheard messages.

    Events written after the claim are fenced off; messages that came after it are read later.
    """
    held = _Held(defaultdict(list), defaultdict(list), set(), {}, set())
    lived = [process for process in claimed if process.events]
    if lived:
        bounds = [one.events if claim.has(one) else 1 for one in lived], [one.events for one in lived]
        columns = [one.id for one in lived], [one.run for one in lived], *bounds
        for found in await writes.rows("claimed_events", *columns):
            held.events[found[0]].append(row.event_of(found))
    asked = {process.id: process for process in claimed if process.inbox}
    if not asked:
        return held
    runs = [0 if claim.has(one) else one.run for one in asked.values()]  # in run 0 no event refers to a message
    wants = [*asked], runs, [one.seen for one in asked.values()]
    size = 0
    for found in await writes.rows("claimed_messages", *wants, limits.HEARD_BYTES):
        if found[0] is not None:
            message = row.message_of(found)
            process = asked[message.process]
            size += len(message.payload) if message.number > process.seen else 0
            if message.number <= process.inbox:
                held.messages[message.process].append(message)
        elif found[9] is None:
            held.backlog.add(found[1])
        else:
            held.holes[found[1]] = lacking(found[1], found[9], found[10])
    if size >= limits.HEARD_BYTES:  # what came after the claim has taken its part of the answer too
        held.cut.update(one.id for one in asked.values() if lacks(one, held.messages[one.id]))
    return held
