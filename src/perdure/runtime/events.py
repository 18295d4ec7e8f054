"""The events of a worker: what its roles tell it, and what it tells those who wait for the ends of processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perdure.kernel.claim import Claimed
    from perdure.kernel.commit import Commit
    from perdure.kernel.event import Event
    from perdure.kernel.note import Note
    from perdure.kernel.process import Process
    from perdure.kernel.soundness import Finding
    from perdure.runtime.instance import Instance


class Ends(Protocol):
    """Gets the ends of processes, and the answers to calls, for the callers that wait for them."""

    def ended(self, process: Process, sent: float) -> None:
        """A process has ended or was parked, by a commit that went out at that monotonic time."""

    def parted(self, id: bytes) -> None:
        """A process was let go here."""

    def answered(self, id: bytes, events: Sequence[Event]) -> None:
        """These events of a process have been written here, and answers to calls may be among them."""


class WorkerEvents(Ends, Protocol):
    """What a worker hears from its scheduler, its claimer, its heartbeat and its sweeps."""

    def unheard(self, instance: Instance) -> None:
        """A process has messages that are to be read before it goes on."""

    def in_doubt(self, processes: Sequence[bytes]) -> None:
        """Messages were announced for these processes, and there were none: their leases may be lost."""

    def posted(self, commit: Commit) -> None:
        """A commit has started children or sent messages."""

    def sent(self, process: bytes, owner: bytes | None) -> None:
        """A message was sent to a process; ``owner`` is the worker that owns it, if one does."""

    def due(self, at: int) -> None:
        """This worker has released a row that is due at that time of the store."""

    def strayed(self) -> None:
        """A row that was let go here without writing may still be ours in the store."""

    def taken(self, process: bytes, token: int | None) -> None:
        """A commit from here took a row from its owner; ``token`` is the one that the row has now, if that is known."""

    def undue(self, processes: Iterable[bytes]) -> None:
        """These rest and are not due, and must go on here."""

    def retired(self, incarnation: bytes) -> None:
        """The store says that another worker has ended this incarnation."""

    def suspects(self, due: bool, waiting: bool) -> None:
        """Whether suspects are due, and whether some of them wait for a place in their queue."""

    def found(self, finding: Finding) -> None:
        """A sweep has found something that people should know."""

    def noted(self, notes: Mapping[str, Note], now: int) -> None:
        """These are the notes of all workers, as they were at that time of the store."""

    def worn_out(self, what: str) -> None:
        """This worker is short of something and does not recover by itself: it should be restarted."""

    def steady(self) -> bool:
        """Whether our own beats have come through long enough to judge those of other workers."""

    def offers(self) -> Sequence[bytes]:
        """The offers of the other living workers: what they host."""

    async def reconcile(self) -> int:
        """Free the rows that are ours in the store and not held here (rule 5); return how many."""


class HeldBack(Protocol):
    """Kinds that ordinary claims leave out, and of which some processes are claimed all the same."""

    def offers(self) -> Iterator[tuple[tuple[tuple[str, str], ...], int, bytes | None]]:
        """What to claim of one kind, how much of it, and by its id if it is to be a certain process."""

    def claimed(self, kind: str, claimed: Iterable[Claimed]) -> None:
        """These were claimed of it, and are not held yet."""
