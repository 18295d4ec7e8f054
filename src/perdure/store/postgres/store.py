"""The store on PostgreSQL: many machines, one schema, one round trip for a batch.

Each connection has one purpose: one writes (starts, sends, claims, commits), one listens and holds the worker's lock,
one is kept for beats, one reads, one is for people's searches, and one reads event streams: these two may take long,
and no result and no sweep waits behind them. The last four are opened when they are first needed: a client never
beats. With
``pooler=transaction`` in the URL none listens: hints and instant evidence of death need a session of the worker's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from perdure import limits
from perdure.clock import Computer
from perdure.kernel.child import is_task
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, removes
from perdure.kernel.event import Event, EventType, HistoryWanted
from perdure.kernel.message import LettersWanted, Message, SendAnswer
from perdure.kernel.process import Status
from perdure.kernel.stored import Types
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.logs import logger
from perdure.store.base import EVENT_BYTES, FoundRows, Pruned, RowT, Search, by_process
from perdure.store.failover import DatabaseLine, Lineage, SetBehind
from perdure.store.migrate import ahead, outgrown
from perdure.store.notifications import Listener, StopListening
from perdure.store.postgres import records as row
from perdure.store.postgres.backend import PostgresBackend
from perdure.store.postgres.claimed import read as read_claimed
from perdure.store.postgres.commit import commit
from perdure.store.postgres.connection import PostgresConnection
from perdure.store.postgres.event_log import PostgresEventLog
from perdure.store.postgres.listen import ListenConnection
from perdure.store.postgres.records import (
    first_messages,
    search_columns,
    send_columns,
    start_records,
)
from perdure.store.postgres.roles import narrowed
from perdure.store.postgres.schema import prepare, queries
from perdure.store.postgres.url import address_of

log = logger("store")

BEATS_A_LOOK = 10
_WANTED = ("run", "first", "last")


class PostgresStore:
    """The store protocol on PostgreSQL 13 and later; what each method promises stands in ``store/base.py``."""

    def __init__(self, url: str, *, machine: Computer | None = None) -> None:
        self.url = url
        self._address = address_of(url)
        self._machine = machine = machine or Computer()
        sql = self._sql = dict(queries(self._address.schema))
        self.lineage = Lineage(machine, sql)
        self._writes = PostgresConnection(self._address, machine, sql, "writes", self.lineage.met)
        self._beats = PostgresConnection(self._address, machine, sql, "beats", self.lineage.met)
        self._reads = PostgresConnection(self._address, machine, sql, "reads", self.lineage.met, reads=True)
        self._searches = PostgresConnection(self._address, machine, sql, "searches", self.lineage.met, reads=True)
        self._streams = PostgresConnection(self._address, machine, sql, "streams", self.lineage.met, reads=True)
        self._searches.patience = self._streams.patience = limits.SEARCH_SECONDS
        self._listening = ListenConnection(self._address, machine, sql)
        event_log = PostgresEventLog(self._streams)
        self.backend = PostgresBackend(url, machine, self.lineage, self._listening, event_log)
        self._looking_back = asyncio.Lock()
        self._ahead = 0
        self._beaten = 0

    async def open(self, *, migrate: bool = True) -> None:
        """Connect; create or migrate the schema under a lock, or raise StoreTooOld if ``migrate`` is false."""
        reached, connection = await prepare(self._address, migrate=migrate, found=self._narrow)
        self._ahead = ahead("postgres", reached)
        try:
            await self._writes.open(connection)
            for one in (self._beats, self._reads, self._searches, self._streams):
                one.ready()
            if (await self._writes.row("only_reads"))["only_reads"]:
                # A standby accepts no LISTEN and no writes; it answers reads.
                log.info(
                    "%s is a standby, which only reads: processes can be looked at, but not started, signalled or run",
                    self._address.shown,
                )
            elif not self._address.pooled:
                await self._listening.open()
        except BaseException:
            await self.close()
            raise

    async def _narrow(self, connection: Any) -> None:
        """From now on use the queries that the login may call."""
        self._sql |= {**queries(self._address.schema), **await narrowed(connection, self._address)}

    async def close(self) -> None:
        """Let go of every connection and lock. Safe to call twice."""
        for one in (self._writes, self._beats, self._reads, self._searches, self._streams):
            await one.close()
        await self._listening.close()

    async def now(self) -> int:
        """The store's time, which never runs backward."""
        now: int = (await self._reads.row("now"))["now"]
        return now

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """Store new processes. A second start with the same (kind, key) changes nothing (rule 24)."""
        answers = await self._start(starts) if starts else []
        self.lineage.started(starts, answers)
        return answers

    async def _start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        if all(start.process.key is None for start in starts):
            return await self._started(starts)
        # Two starters with crossed keys must not deadlock: they insert in one order.
        keys = [(start.process.kind, start.process.key or "") for start in starts]
        order = sorted(range(len(starts)), key=keys.__getitem__)
        ordered = [starts[place] for place in order]
        answers = await self._started(ordered)
        return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]

    async def _started(self, starts: Sequence[Start]) -> list[StartAnswer]:
        letters = first_messages(starts)
        if letters is None:
            return row.start_answers(starts, await self._writes.row("start", *start_records(starts)))
        return row.start_answers(starts, await self._writes.row("start_telling", *start_records(starts), letters))

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """Put messages into inboxes, giving each its number; unowned running targets become due now."""
        if not messages:
            return []
        columns = send_columns(messages)
        room = limits.INBOX_RECORDS, limits.INBOX_BYTES
        if len(messages) == 1:
            alone = [column[0] for column in columns]
            return row.send_answers(messages, await self._writes.row("send_alone", *alone, *room))
        return row.send_answers(messages, await self._writes.row("send", *columns, *room))

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """Write commits, at most one per process, each accepted or refused by itself."""
        answers = await commit(self._writes, commits) if commits else []
        self.lineage.committed(commits, answers, removing=any(map(removes, commits)))
        return answers

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """Take due processes: new token, owner, lease; then, in a later statement, read what they hold."""
        if not claim.seize:  # a command does not wait: the client that gives it may run no sweeps
            await self.lineage.settled()
        kinds = [kind for kind, _ in claim.hosted]
        codes = [code for _, code in claim.hosted]
        queued = any(map(is_task, kinds))
        if claim.seize:
            rows = await self._writes.rows("seize", claim.worker, claim.only, claim.lease)
        else:
            name, which = _which(claim, queued)
            asked = claim.worker, kinds, codes, claim.limit, claim.lease
            beats = self.lineage.beats(claim.worker)
            rows = await self._writes.rows(name, *asked, *which, check=self.lineage.check)
            if beats > (-1 if rows[0][5] is None else rows[0][5]):
                # If we die here, or not, the rows taken are ours and no worker runs them: their leases lapse.
                await self._look_back(SetBehind(), self.lineage.line)
        now, next_due_at, alive, suspects = rows[0][:4] if len(rows) == 1 else row.claim_head(rows)
        taken = [(one[4], row.process_of(one[6:])) for one in rows if one[6] is not None]
        if queued:
            taken.sort(key=lambda pair: pair[1].priority)  # they come in several parts
        met = Types.met
        claimed = await read_claimed(self._writes, claim, taken)
        if Types.met != met and not self._ahead:  # perhaps a newer Perdure has migrated since we looked
            await self._look_ahead(now=True)
        self.lineage.claimed(process for _, process in taken)
        return ClaimAnswer(claimed, now, next_due_at, alive, bool(suspects), self._ahead, suspects is None)

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """Register a new incarnation and take its lock; the answer says whether the lock counts."""
        locked = not self._address.pooled and await self._listening.hold(worker.id)
        # If we die here the lock is free and no row names it: nothing has died.
        found = await self._writes.row("enlist", worker.id, worker.name, worker.hosts, silence, locked)
        self.lineage.enlisted(worker.id, found["beats"])
        return replace(
            worker,
            started_at=found["started_at"],
            beats=found["beats"],
            due_at=found["due_at"],
            locked=found["counts"],
            ended_at=found["ended_at"],
            died=found["died"],
        )

    async def beat(self, beat: Beat) -> BeatAnswer:
        """Record a sign of life and prolong leases; never waits behind other writes."""
        if beat.hang is not None:
            kept = await self._beats.rows("keep_hang", beat.worker, beat.hang)
            return BeatAnswer(bool(kept), kept[0]["now"] if kept else 0)
        asked = beat.renewals or None
        line = self.lineage.line
        found = await self._beats.row(
            "beat",
            beat.worker,
            beat.lease,
            beat.silence,
            asked and [one.process for one in asked],
            asked and [one.token for one in asked],
            asked and [one.progress for one in asked],
            beat.figures,
        )
        if line is self.lineage.line:
            try:
                self.lineage.beaten(beat.worker, found["beats"], found["alive"], found["line"])
            except SetBehind as behind:
                await self._look_back(behind, line)
        gone = await self._look_ahead()
        lost, skipped = tuple(found["lost"] or ()), tuple(found["skipped"] or ())
        return BeatAnswer(found["alive"], found["now"], lost, found["lead"], self._ahead, gone, skipped)

    async def _look_ahead(self, *, now: bool = False) -> bool:
        """At every tenth beat, or ``now``, look for a newer schema; the answer is whether it is too new for us."""
        self._beaten += not now
        if self._beaten % BEATS_A_LOOK != 1 and not now:
            return False
        found = await self._beats.row("reached")
        self._ahead = max(self._ahead, ahead("postgres", found["reached"]))
        return outgrown("postgres", found["oldest"])

    async def _look_back(self, behind: SetBehind, known: DatabaseLine | None) -> None:
        """The database was set back: find what is lost, let claims wait, draw a new line; raises ``behind``."""
        async with self._looking_back:
            if self.lineage.line is known:  # no other call here has found it first
                await self.lineage.set_behind(self._reads)
                # If we die here, another store that was answered lost commits finds them missing by itself.
                await self._writes.rows("draw_line", known and known[1], self._machine.new_id())
                database, name, _ = await self._writes.row("line")
                self.lineage.adopt((database, name))
        raise behind

    async def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """End an incarnation once, if it has beaten no more than ``beats`` times. False: it lives, or had ended."""
        ended: bool = (await self._writes.row("retire", worker, beats, died))["ended"]
        if ended:
            await self._listening.free(worker)
        return ended

    async def workers(self, *, ended: bool = False, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
        """See Store."""
        asked = ("workers", ended) if ids is None else ("workers_of", list(ids))
        return [row.worker_of(found) for found in await self._reads.rows(*asked)]

    async def search(self, search: Search) -> FoundRows:
        """Processes, newest first; or rows that a sweep must look at, the longest overdue first."""
        if search.overdue is not None:
            behind, pair = search.after or (None, None), search.after_pair or (None, None)
            page = search.overdue, search.limit, search.owner, *behind, *pair
            return row.page_of(await self._reads.rows("overdue_page", *page, limits.BATCH_BYTES))
        if search.ended_to is not None:
            page = search.ended_to, *(search.after or (None, None)), search.limit
            return row.page_of(await self._reads.rows("ended_page", *page, limits.BATCH_BYTES))
        if search.ids is not None and search == Search(ids=search.ids, statuses=search.statuses, limit=search.limit):
            asked = list(search.ids), list(search.statuses) or None, search.limit
            return FoundRows([row.process_of(one[:]) for one in await self._reads.rows("search_by_id", *asked)])
        columns = search_columns(search)
        if not columns:
            return FoundRows()
        found = await self._searches.rows("search", *columns, search.before_id, search.limit)
        return FoundRows([row.process_of(one[:]) for one in found])

    async def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """How many processes there are by kind and status."""
        columns = search_columns(search)
        found = await self._searches.rows("count", *columns) if columns else ()
        return [(one["kind"], row.STATUSES[one["status"]], one["processes"]) for one in found]

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
        """Events of one run with numbers above ``after`` (below it, newest first, if ``backward`` and not 0)."""
        narrow = [int(type) for type in types] or None, list(names) or None
        found = await self._reads.rows("history", process, run, after, limit, backward, *narrow)
        return [row.event_of(one) for one in found]

    async def histories(self, wants: Sequence[HistoryWanted], *, most: int) -> dict[bytes, list[Event]]:
        """For each process the events that are wanted, up to ``most`` bytes."""
        if not wants:
            return {}
        columns = [[want.process for want in wants], *([getattr(want, name) for want in wants] for name in _WANTED)]
        found = await self._searches.rows("claimed_events_from", *columns, most, EVENT_BYTES)
        return by_process(wants, ((one[0], row.event_of(one)) for one in found))

    async def messages(
        self, wants: Sequence[tuple[bytes, int]] = (), *, most: int = 0, waiting: Sequence[LettersWanted] = ()
    ) -> list[Message]:
        """For each (process, number): its messages with higher numbers, by process and number; or letters that wait."""
        if waiting:
            asked = [list(column) for column in zip(*map(astuple, waiting), strict=True)]
            found = await self._reads.rows("waiting_letters", *asked, limits.BATCH_BYTES)
            return [row.message_of(one) for one in found]
        if not wants:
            return []
        columns = [process for process, _ in wants], [number for _, number in wants]
        if most:
            return [row.message_of(found) for found in await self._reads.rows("next_messages", *columns, most)]
        return [row.message_of(found) for found in await self._reads.rows("messages", *columns)]

    async def records(self, table: type[RowT], changes: Sequence[RowT] = ()) -> list[RowT]:
        """Write rows of a small table, each only if its ``version`` is the next one; all its rows as they are then."""
        one = self._writes if changes else self._reads
        name = f"{table.__name__.lower()}s"
        return [table(*found) for found in await one.rows(name, [astuple(change) for change in changes])]

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
        """Remove what ended longer than ``finished`` microseconds ago; or former runs ``of`` one; or ``only`` these."""
        if of is not None:
            return Pruned(0, 0, (await self._writes.row("remove_runs", *of, limits.PRUNED_EVENTS))["runs"])
        if only:
            ids, versions = [id for id, _ in only], [version for _, version in only]
            return Pruned((await self._writes.row("remove_ended", ids, versions, keys))["processes"], 0)
        removed = forgotten = 0
        more = True
        while more:
            found = await self._writes.row("prune", finished, keys, limit - removed, limits.PRUNED_EVENTS)
            # If we die here a portion was removed, whole; the next pruning goes on.
            removed, forgotten = removed + found["processes"], forgotten + found["forgotten"]
            more = found["more"] and removed < limit
        former = await self._writes.row("prune_runs", finished, keys, behind, limit, limits.PRUNED_EVENTS)
        return Pruned(removed, forgotten, former["runs"], former["place"])

    def watch(self, listener: Listener) -> StopListening:
        """Call ``listener`` with the notifications of this store and of others; the answer stops the watch."""
        return self._listening.watch(listener)


def _which(claim: Claim, queued: bool) -> tuple[str, tuple[object, ...]]:
    """The statement of a claim, and what it is given besides what all are given."""
    if claim.resting:
        known = [claim.cached[id] for id in claim.among]
        return "claim_resting", (list(claim.among), [token for token, _ in known], [version for _, version in known])
    if claim.among:
        return "claim_among", (list(claim.among),)
    return "claim_queued" if queued else "claim", (claim.alone, claim.only)
