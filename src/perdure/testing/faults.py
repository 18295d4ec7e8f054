"""Faults: a real store behind a door that can be slow, fail before or after, or stand still, at chosen calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from perdure.errors import StoreUnavailable
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer
from perdure.kernel.event import Event, HistoryWanted
from perdure.kernel.message import Message, SendAnswer
from perdure.kernel.process import Status
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.store.backend import Backend
from perdure.store.base import FoundRows, Pruned, RowT, Search, Store
from perdure.store.notifications import Listener, StopListening

AnswerT = TypeVar("AnswerT")

Visit = Callable[[str, Any], Awaitable[None]]
"""Called with the door's name and its argument; may wait, or raise StoreUnavailable."""


class FaultyStore(Store):
    """Hands every call on to a real store. ``before`` and ``after`` are called around each; both may raise.

    An error raised by ``before`` means that nothing was done; one raised by ``after`` that all was done and the
    answer is lost: the caller cannot tell which. ``calls`` records the doors used, in order.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.url = store.url
        self.calls: list[tuple[str, Any]] = []
        self.before: Visit = _pass
        self.after: Visit = _pass

    @property
    def backend(self) -> Backend:
        """The backend of the store behind."""
        return self.store.backend

    async def _call(
        self, name: str, door: Callable[..., Awaitable[AnswerT]], argument: Any, *args: Any, **kwargs: Any
    ) -> AnswerT:
        self.calls.append((name, argument))
        await self.before(name, argument)
        answer = await door(argument, *args, **kwargs)
        await self.after(name, argument)
        return answer

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store behind."""
        await self.store.open(migrate=migrate)

    async def close(self) -> None:
        """Close the store behind."""
        await self.store.close()

    async def now(self) -> int:
        """The time of the store behind."""
        await self.before("now", None)
        return await self.store.now()

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """See Store."""
        return await self._call("start", self.store.start, starts)

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """See Store."""
        return await self._call("send", self.store.send, messages)

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store."""
        return await self._call("claim", self.store.claim, claim)

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """See Store."""
        return await self._call("commit", self.store.commit, commits)

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """See Store."""
        return await self._call("enlist", self.store.enlist, worker, silence)

    async def beat(self, beat: Beat) -> BeatAnswer:
        """See Store."""
        return await self._call("beat", self.store.beat, beat)

    async def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """See Store."""
        return await self._call("retire", self.store.retire, worker, beats, died)

    async def workers(self, *, ended: bool = False, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
        """See Store."""
        await self.before("workers", ids)
        return await self.store.workers(ended=ended, ids=ids)

    async def search(self, search: Search) -> FoundRows:
        """See Store."""
        return await self._call("search", self.store.search, search)

    async def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """See Store."""
        return await self._call("count", self.store.count, search)

    async def history(self, process: bytes, run: int, **narrow: Any) -> list[Event]:
        """See Store."""
        return await self._call("history", self.store.history, process, run, **narrow)

    async def histories(self, wants: Sequence[HistoryWanted], **narrow: Any) -> dict[bytes, list[Event]]:
        """See Store."""
        return await self._call("histories", self.store.histories, wants, **narrow)

    async def messages(self, wants: Sequence[tuple[bytes, int]] = (), **narrow: Any) -> list[Message]:
        """See Store."""
        return await self._call("messages", self.store.messages, wants, **narrow)

    async def prune(self, finished: int, *given: Any, **narrow: Any) -> Pruned:
        """See Store."""
        return await self._call("prune", self.store.prune, finished, *given, **narrow)

    async def records(self, table: type[RowT], changes: Sequence[RowT] = ()) -> list[RowT]:
        """See Store."""
        return await self._call("records", self.store.records, table, changes)

    def watch(self, listener: Listener) -> StopListening:
        """See Store."""
        return self.store.watch(listener)


async def _pass(name: str, argument: Any) -> None:
    """Do nothing."""


class Outage:
    """A store that is away while ``away`` is set: calls fail before they do anything, or after all was done.

    ``doors`` narrows it to those doors; ``failed`` counts the calls that failed.
    """

    def __init__(self, *doors: str, after: bool = False) -> None:
        self.away = False
        self.doors = doors
        self.failed = 0
        self.lost_answers = after

    def upon(self, store: FaultyStore) -> Outage:
        """Install this outage on a faulty store."""
        if self.lost_answers:
            store.after = self._visit
        else:
            store.before = self._visit
        return self

    async def _visit(self, name: str, argument: Any) -> None:
        if self.away and (not self.doors or name in self.doors):
            self.failed += 1
            raise StoreUnavailable(f"{name}: the store is away, as the test wants it")


class Gate:
    """Holds the calls of one door until it is opened; ``reached`` is set when the first has come."""

    def __init__(self, door: str, suits: Callable[[Any], bool] = lambda argument: True) -> None:
        self.door = door
        self.suits = suits
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, name: str, argument: Any) -> None:
        """Wait here if this is the door, and its argument suits."""
        if name == self.door and self.suits(argument) and not self.open.is_set():
            self.reached.set()
            await self.open.wait()
