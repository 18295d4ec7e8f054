"""The store protocol: what every database must do, in at most 19 methods, none optional.

Three doors change processes: :meth:`Store.send` (with :meth:`Store.start`), :meth:`Store.claim` and
:meth:`Store.commit`. Each takes a batch and answers each member by itself. Every write may be sent again unchanged
after :class:`~perdure.errors.StoreUnavailable`: it is applied at most once and answered as the first time.

The stores decide nothing: what a commit writes was computed by the kernel. They compare fences under the row's lock,
give numbers and times, and keep the laws as constraints. The backend of a store
(:class:`~perdure.store.backend.Backend`) tells what its database offers besides the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from msgspec import Struct

from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer
from perdure.kernel.event import Event, EventType, HistoryWanted
from perdure.kernel.message import LettersWanted, Message, MessageType, SendAnswer
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import SWITCH, Queue
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.store.backend import Backend
from perdure.store.notifications import Listener, StopListening

RowT = TypeVar("RowT", bound=Struct)
"""A row of a small table: people set ``Queue`` rows, breakers ``Circuit`` rows, programs that lead ``Leader`` rows;
workers ``Note`` rows, checks ``KeptFinding`` and ``Audit`` rows; ``Load`` and ``Backlog`` are counts."""


class Overdue(StrEnum):
    """The ways to be overdue that a sweep asks the store for; each is one named, indexed query."""

    ORPHANED = "orphaned"  # owned by an incarnation that has ended
    LAPSED = "lapsed"  # running, owned, lease expired (a claim takes those of the kinds that this worker hosts)
    EXPIRED = "expired"  # unfinished and past its deadline
    IDLE = "idle"  # rows whose reminder is due (idle, held or broken ones): a sweep looks at them, without a turn
    OWNED = "owned"  # owned by the worker given as ``owner``
    UNHOSTED = "unhosted"  # running, unowned, due for longer than a minute: no live worker takes it
    INBOX = "inbox"  # running, unowned, not due; its inbox holds letters that were heard and not received


class Search(Struct, frozen=True, gc=False):
    """What to look for; every field narrows. Times are microseconds. Newest first, by id, after ``before_id``.

    Queued steps, whose kinds begin with ``@``, are left out unless ``tasks`` is true or a kind, ids or a key are given.
    ``roots`` leaves out every process that another one has started.

    ``overdue`` asks for the rows that a sweep must look at instead, the longest overdue first. Of the other fields
    only these count then: ``limit``; ``owner``, for owned rows; and ``after``, the time and id of the last row of the
    page before. Unhosted rows are shared out fairly: each waiting kind and version gets an equal part of ``limit``.
    Their next page begins after the pair ``after_pair``; there is one if this page named ``limit`` pairs. Inboxes are
    ordered by the ids of their processes: of ``after`` only the id counts.

    ``ended_to`` asks for the processes that had ended by that time instead, queued steps too, the longest ended first.
    Of the other fields only ``limit`` and ``after`` count then, as above, with the time of the end.

    A page of what is overdue or had ended holds ``BATCH_BYTES`` of inputs, states, results and errors at most, or one
    process; of unhosted rows first one of each kind and version, in their order. See ``FoundRows.left``.
    """

    ids: tuple[bytes, ...] | None = None
    kind: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    statuses: tuple[Status, ...] = ()
    created_from: int | None = None
    created_to: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()  # name and JSON text of the value, all must be equal
    before_id: bytes | None = None
    limit: int = 100
    tasks: bool = False
    roots: bool = False
    overdue: Overdue | None = None
    owner: bytes | None = None
    after: tuple[int, bytes] | None = None
    after_pair: tuple[str, str] | None = None
    ended_to: int | None = None

    @property
    def without_tasks(self) -> bool:
        """Whether queued steps are left out: the search asks neither for them nor for a kind, an id or a key."""
        return not (self.tasks or self.kind or self.ids is not None or self.key is not None)


class FoundRows(list[Process]):
    """What a search has found. ``left`` are so many that fit into its limit, and not into one answer: see Search.

    They are on the next page, which begins behind the last row of this one, or its last kind and version.
    """

    left = 0

    @property
    def in_all(self) -> int:
        """How many rows fit into the limit: those of this answer, and those that are left."""
        return len(self) + self.left


class Pruned(Struct, frozen=True, gc=False):
    """What one bounded pruning removed: whole processes, keys, and former ``runs`` of processes that go on.

    The next pruning looks for former runs after the process ``behind``; if that is None, it begins at the first one.
    """

    processes: int
    keys: int
    runs: int = 0
    behind: bytes | None = None


class Store(Protocol):
    """Keeps the rows. All times are microseconds since 1970 by the store's own clock."""

    url: str

    @property
    def backend(self) -> Backend:
        """What the database offers besides its rows."""

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; create or migrate the schema under a lock, or raise StoreTooOld if ``migrate`` is false."""

    async def close(self) -> None:
        """Let go of every connection, thread and lock. Safe to call twice."""

    async def now(self) -> int:
        """The store's time, which never runs backward."""

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """Store new processes. A second start with the same (kind, key) changes nothing (rule 24)."""

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """Put messages into inboxes, giving each its number; unowned running targets become due now."""

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """Take due processes: new token, owner, lease; then, in a later statement, read what they hold."""

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """Write commits, at most one per process, each accepted or refused by itself."""

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """Register a new incarnation and take its lock; the answer says whether the lock counts."""

    async def beat(self, beat: Beat) -> BeatAnswer:
        """Record a sign of life and prolong leases; never waits behind other writes: a locked row is skipped."""

    async def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """End an incarnation once, if it has beaten no more than ``beats`` times. False: it lives, or had ended."""

    async def workers(self, *, ended: bool = False, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
        """The incarnations not ended (or the recently ended ones too), each with a look at its lock, by id.

        With ``ids`` these alone, ended or not: very many may have ended in a day, and each row holds all it hosted.
        """

    async def search(self, search: Search) -> FoundRows:
        """Processes, newest first; or rows that a sweep must look at, the longest overdue first."""

    async def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """How many processes there are by kind and status; ``before_id`` and ``limit`` are ignored: no pages."""

    async def history(
        self,
        process: bytes,
        run: int,
        *,
        after: int = 0,
        limit: int = 1000,
        backward: bool = False,
        types: Sequence[EventType] = (),
        names: Sequence[str] = (),
    ) -> list[Event]:
        """Events of one run with numbers above ``after`` (below it, newest first, if ``backward`` and not 0).

        ``types`` and ``names`` narrow if any are given. Published values of one name are found by a seek. If ``types``
        are the two of answers to calls and ``names`` are given, the answer is the first event of each name in this run
        or a later one, found by a seek too; ``after`` and ``backward`` do not count then.
        """

    async def histories(self, wants: Sequence[HistoryWanted], *, most: int) -> dict[bytes, list[Event]]:
        """For each process, of which none is named twice: its events that are wanted, by number; in one statement.

        ``most`` ends the answer after this many bytes (of payloads, and ``EVENT_BYTES`` for each event), but neither
        within a history nor before its first one. Processes that are not in the answer are to be asked for again.
        """

    async def messages(
        self, wants: Sequence[tuple[bytes, int]] = (), *, most: int = 0, waiting: Sequence[LettersWanted] = ()
    ) -> list[Message]:
        """For each (process, number): its messages with higher numbers, by process and number.

        ``most`` ends the answer after this many bytes of payloads, but not before its first message; a caller that
        needs the rest asks again. ``waiting`` asks for letters that were heard and not received instead, of each name
        of each process up to as many as are wanted, and up to 8 MiB.
        """

    async def records(self, table: type[RowT], changes: Sequence[RowT] = ()) -> list[RowT]:
        """Write rows of a small table, each only if its ``version`` is the next one; all its rows as they are then.

        They are ordered by name. If two callers change the same version of a row, the answer shows whose change counts.
        Tables of the kernel: ``Queue``, ``Circuit``, ``Leader``, ``Note``, ``KeptFinding``, ``Audit``; ``Load`` and
        ``Backlog``, which are counted.
        """

    async def prune(
        self,
        finished: int,
        keys: int,
        limit: int,
        behind: bytes | None = None,
        *,
        of: tuple[bytes, int] | None = None,
        only: Sequence[tuple[bytes, int]] = (),
    ) -> Pruned:
        """Remove processes finished longer than ``finished`` microseconds ago; keep their keys for ``keys`` more.

        One with more than ``PRUNED_EVENTS`` events loses its former runs first, in transactions of their own; if the
        caller dies between two of them, the process is there, with its key, and the next pruning goes on.
        Of unfinished processes after ``behind`` it removes former runs that ended as long ago. The last former run
        stays, and so do messages that the oldest remaining run has taken over. Answers to calls and the keys of
        messages stay as long as keys do.

        With ``of``, an id and a version, it removes a portion of the former runs of this one process, whatever their
        age, and nothing else: its removal must not be one long transaction. If the process is no longer at that
        version, none is removed. With ``only`` it removes those of these processes, each given by
        its id and version, that have ended and are still at that version, and nothing else, in one transaction.

        While the note ``RETENTION`` is younger than a day, some worker removes processes by rules, perhaps after it has
        archived them: then no process is removed by its age alone.
        """

    def watch(self, listener: Listener) -> StopListening:
        """Call ``listener`` with the notifications of this store and of others; the answer stops the watch.

        Notifications only save polls: one may be late, be lost, or say merely that there is something.
        """


EVENT_BYTES = 100
"""What each event counts beside its payload where an answer is bounded in bytes."""


def by_process(wants: Sequence[HistoryWanted], found: Iterable[tuple[bytes, Event]]) -> dict[bytes, list[Event]]:
    """The answer to a question for ``histories``: it was read in the order of the ids, and ends behind the last found.

    A process without events stands in it as well; if none was found at all, no process has any.
    """
    told: dict[bytes, list[Event]] = {}
    for process, event in found:
        told.setdefault(process, []).append(event)
    behind = max(told, default=b"\xff" * 16)
    return told | {want.process: [] for want in wants if want.process not in told and want.process <= behind}


def reached(answer: Sequence[Message]) -> Message:
    """The message up to which an answer is whole, though it may have been cut; an order to end may be read ahead."""
    return next((one for one in reversed(answer) if one.type is not MessageType.TERMINATE), answer[0])


async def every_message(store: Store, wants: Sequence[tuple[bytes, int]], *, most: int) -> AsyncIterator[list[Message]]:
    """For each (process, number): all its messages with higher numbers, in portions of ``most`` bytes of payloads."""
    while found := await store.messages(wants, most=most):
        last = reached(found)  # an order to end that was read ahead comes again behind those that were left
        place = (last.process, last.number)
        yield [one for one in found if (one.process, one.number) <= place]
        wants = [place, *(want for want in sorted(wants) if want[0] > last.process)]


async def switch(store: Store) -> Queue:
    """The switch as it is now: blocked, by whom and why, while automatic recovery is paused."""
    return next((row for row in await store.records(Queue) if row.name == SWITCH), Queue(SWITCH, 0))
