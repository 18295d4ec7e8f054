"""The store of a node whose Perdure is one release newer: it knows a schema and a type of event that others do not.

That type stands for a timer that has fired. So a worker that does not know the type may not go on with the process: to
skip the event would be another way than the one that was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer
from perdure.kernel.event import Event, EventType
from perdure.kernel.stored import Types, UnknownNumber
from perdure.kernel.worker import Beat, BeatAnswer
from perdure.testing.simulator.store import SimStore

TOMORROWS = 77
_WRITTEN = {EventType.TIMER_FIRED: Types[EventType]()[TOMORROWS]}
_READ: dict[Any, EventType] = {UnknownNumber(TOMORROWS): EventType.TIMER_FIRED}


class NewerStore(SimStore):
    """It writes and reads the new type where others have a fired timer, and says that it knows the newer schema."""

    newer = True

    async def open(self, *, migrate: bool = True) -> None:
        """See Store."""
        await super().open(migrate=migrate)
        self.backend.schema += 1

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store."""
        answer = await super().claim(claim)
        claimed = tuple(replace(one, events=tuple(_told(one.events, _READ))) for one in answer.claimed)
        return replace(answer, claimed=claimed, schema_ahead=0)

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """See Store."""
        return await super().commit([replace(one, events=tuple(_told(one.events, _WRITTEN))) for one in commits])

    async def beat(self, beat: Beat) -> BeatAnswer:
        """See Store."""
        return replace(await super().beat(beat), schema_ahead=0)


def _told(events: Sequence[Event], types: Mapping[Any, EventType]) -> list[Event]:
    return [replace(event, type=types[event.type]) if event.type in types else event for event in events]
