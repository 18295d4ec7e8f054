"""A tiny model of what a store must answer, to compare answers with; nothing runs on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.kernel import queue
from perdure.kernel.claim import Claim, ClaimAnswer, Claimed
from perdure.kernel.commit import Commit, CommitAnswer, Removal, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import ANSWERS, Event
from perdure.kernel.message import LETTERS, Message, SendAnswer, SendVerdict
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.quarantine import is_suspect, together
from perdure.kernel.queue import Queue
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.store.base import Pruned, Search
from perdure.testing.model_overdue import overdue


class KeptKey(Struct, frozen=True):
    """What pruning leaves of a process that had a key, until its time is over."""

    id: bytes
    input: bytes
    until: int


class Model:
    """The same three doors over plain dictionaries: one caller, one record after the other, one time set by hand."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.rows: dict[bytes, Process] = {}
        self.events: dict[tuple[bytes, int], list[Event]] = {}
        self.inboxes: dict[bytes, list[Message]] = {}
        self.first_runs: dict[bytes, int] = {}
        self.workers: dict[bytes, WorkerRow] = {}
        self.kept: dict[tuple[str, str], KeptKey] = {}
        self.queues: dict[str, Queue] = {}

    def alive(self, worker: bytes) -> bool:
        """Whether this incarnation is enlisted and has not ended."""
        return worker in self.workers and self.workers[worker].ended_at is None

    # Starting

    def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """Answer each start; store those that are new."""
        return [self._start(start) for start in starts]

    def _start(self, start: Start) -> StartAnswer:
        process = start.process
        holder = self._holder(process)
        if process.id in self.rows or (holder and holder.id == process.id):
            row = self.rows.get(process.id)
            return StartAnswer(StartVerdict.CREATED, process.id, row.inbox if row else 0, self.now, again=True)
        if holder:
            verdict = StartVerdict.EXISTS if holder.input == process.input else StartVerdict.CONFLICT
            inbox = self.rows[holder.id].inbox if holder.id in self.rows else 0
            return StartAnswer(verdict, holder.id, inbox, self.now)
        if process.owner and not self.alive(process.owner):
            return StartAnswer(StartVerdict.REFUSED, process.id, 0, self.now)
        due_at: int | None = process.due_at or self.now
        if process.owner:
            due_at = self.now + start.lease
        elif process.final:
            due_at = None
        created_at = process.created_at or self.now
        opened_at = process.opened_at or (created_at if process.owner else None)
        self.rows[process.id] = replace(
            process, due_at=due_at, created_at=created_at, opened_at=opened_at, changed_at=self.now
        )
        self._append(process, start.events)
        self.send(start.messages)
        received = {event.message: event.number for event in start.events if event.message is not None}
        if received:
            self.inboxes[process.id] = [
                replace(message, consumed_run=process.run, consumed_by=received[message.number])
                if message.number in received
                else message
                for message in self.inboxes.get(process.id, [])
            ]
        return StartAnswer(StartVerdict.CREATED, process.id, len(start.messages), self.now)

    def _holder(self, process: Process) -> Process | KeptKey | None:
        if process.key is None:
            return None
        for row in self.rows.values():
            if (row.kind, row.key) == (process.kind, process.key):
                return row
        kept = self.kept.get((process.kind, process.key))
        return kept if kept and kept.until > self.now else None

    def _append(self, row: Process, events: Iterable[Event]) -> None:
        stamped = [replace(event, token=row.token, version=row.version) for event in events]
        self.events.setdefault((row.id, row.run), []).extend(stamped)

    # Sending

    def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """Answer each send; number and keep what is new."""
        return [self._send(message) for message in messages]

    def _send(self, message: Message) -> SendAnswer:
        row = self.rows.get(message.process)
        if row is None:
            return SendAnswer(SendVerdict.NOT_FOUND, message.process, 0, None, self.now)
        inbox = self.inboxes.setdefault(row.id, [])
        same = next((kept for kept in inbox if kept.id == message.id), None)
        other = next((kept for kept in inbox if message.key is not None and kept.key == message.key), None)
        if same is None and other is not None:
            return SendAnswer(SendVerdict.DUPLICATE, row.id, other.number, row.owner, self.now)
        number = same.number if same else row.inbox + 1
        if same is None:
            inbox.append(replace(message, number=number, at=self.now))
            self.rows[row.id] = row = self._woken(replace(row, inbox=number))
        late = row.final and number > row.seen
        verdict = SendVerdict.FINISHED if late else SendVerdict.DELIVERED
        return SendAnswer(verdict, row.id, number, row.owner, self.now)

    def _woken(self, row: Process) -> Process:
        if row.status is not Status.RUNNING or row.owner is not None:
            return row
        due_at = self.now if row.reminder or row.due_at is None else min(row.due_at, self.now)
        return replace(row, due_at=due_at, reminder=False, changed_at=self.now)

    # Claiming

    def claim(self, claim: Claim) -> ClaimAnswer:
        """Take what is due: lapsed rows first, then by priority, due time and id."""
        if claim.seize:
            rows = [row for row in self.rows.values() if row.id == claim.only and row.owner]
            return ClaimAnswer(tuple(self._take(row, claim) for row in rows if row.status is Status.RUNNING), self.now)
        if not self.alive(claim.worker):
            return ClaimAnswer((), self.now, alive=False)
        taken = self._wanted(claim)[: claim.limit]
        if claim.alone:
            taken = [row for row in taken if bool(row.owner) == bool(taken[0].owner)]
            taken = [taken[place] for place in together([row.alone_deaths for row in taken])]
        claimed = [self._take(row, claim) for row in taken]
        claimed.sort(key=lambda one: one.process.priority)
        left = [row for row in self.rows.values() if self._hosted(row, claim) and not row.owner and not row.reminder]
        times = [row.due_at or 0 for row in left if is_suspect(row) == claim.alone]
        danger = any(is_suspect(row) and (row.due_at or 0) <= self.now for row in left)
        return ClaimAnswer(tuple(claimed), self.now, min(times, default=None), True, danger)

    def _hosted(self, row: Process, claim: Claim) -> bool:
        return row.status is Status.RUNNING and (row.kind, row.code) in claim.hosted

    def _wanted(self, claim: Claim) -> list[Process]:
        able = [row for row in self.rows.values() if self._hosted(row, claim) and is_suspect(row) == claim.alone]
        due = [row for row in able if (row.due_at or 0) <= self.now]
        lapsed = sorted((row for row in due if row.owner), key=lambda row: (row.due_at, row.id))
        free = [row for row in due if not row.owner and not row.reminder]
        if claim.only is None:
            return lapsed + sorted(free, key=lambda row: (row.priority, row.due_at, row.id))
        return [row for row in able if row.id == claim.only and (not row.owner or row in lapsed)]

    def _take(self, row: Process, claim: Claim) -> Claimed:
        self.rows[row.id] = after = replace(
            row,
            token=row.token + 1,
            owner=claim.worker,
            due_at=self.now + claim.lease,
            reminder=False,
            opened_at=row.opened_at or self.now,
            changed_at=self.now,
        )
        events = self.events.get((row.id, row.run), [])
        named = {event.message for event in events}
        inbox = self.inboxes.get(row.id, [])
        messages = [message for message in inbox if message.number > row.seen or message.number in named]
        left = any(message.number <= row.seen and message.consumed_by is None for message in inbox)
        return Claimed(after, tuple(events), tuple(messages), row.owner, backlog=left)

    # Committing

    def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """Answer each commit; write those whose fence fits, then what these send out, children first."""
        written: list[Commit] = []
        answers = [CommitAnswer(self._commit(one, written), self._inbox(one.after.id), self.now) for one in commits]
        self.start([start for one in written for start in one.starts])
        self.send([message for one in written for message in one.sends])
        for one in written:
            if one.removes is Removal.PROCESS:
                self._forget(self.rows[one.after.id])
        return answers

    def _inbox(self, process: bytes) -> int:
        return self.rows[process].inbox if process in self.rows else 0

    def _commit(self, commit: Commit, written: list[Commit]) -> Verdict:
        after, row = commit.after, self.rows.get(commit.after.id)
        if row is None:
            return Verdict.APPLIED if commit.removes is Removal.PROCESS else Verdict.REFUSED
        if (row.token, row.version) != (commit.token, commit.version):
            known = commit.removes is not Removal.PROCESS and self._applied(row, commit)
            return Verdict.APPLIED if known else Verdict.REFUSED
        if commit.brings is not None and not self._is_next(commit.brings, row):
            return Verdict.READ_FIRST
        if commit.not_before > self.now:
            return Verdict.EARLY
        if after.final and row.inbox > after.seen and after.token == commit.token:
            return Verdict.READ_FIRST
        if commit.brings is not None:
            row = replace(row, inbox=commit.brings.number)
            self.inboxes.setdefault(row.id, []).append(replace(commit.brings, at=self.now))
        unheard = after.status is Status.RUNNING and not commit.lease and row.inbox > after.seen
        due_at = after.due_at
        if commit.lease:
            due_at = self.now + commit.lease
        elif unheard:
            due_at = self.now
        reminder = after.reminder and not unheard and not commit.lease
        self.rows[row.id] = replace(
            after,
            owner=after.owner if commit.lease else None,
            due_at=due_at,
            reminder=reminder,
            inbox=row.inbox,
            attributes=after.attributes if commit.attributes_set else row.attributes,
            progress=row.progress if commit.progress_kept else after.progress,
            changed_at=row.changed_at if reminder and _only_reminds(row, after) else self.now,
            created_at=row.created_at,
        )
        self._append(after, commit.events)
        self._consume(commit)
        written.append(commit)
        return Verdict.APPLIED

    def _is_next(self, letter: Message, row: Process) -> bool:
        """Whether a letter that a commit brings is the next one of its inbox, and new there."""
        keys = {message.key for message in self.inboxes.get(row.id, [])} - {None}
        return letter.number == row.inbox + 1 and letter.key not in keys

    def _applied(self, row: Process, commit: Commit) -> bool:
        after = commit.after
        if not commit.events:
            return (row.token, row.version) == (after.token, after.version)
        first = replace(commit.events[0], token=after.token, version=after.version)
        return first in self.events.get((after.id, after.run), [])

    def _consume(self, commit: Commit) -> None:
        after, inbox = commit.after, self.inboxes.get(commit.after.id, [])
        consumed = dict(commit.consumed)
        for place, message in enumerate(inbox):
            if commit.offered is not None:
                again = message.consumed_run == after.run - 1 and message.type in LETTERS
                kept = next((event.number for event in commit.events if event.message == message.number), None)
                if kept or again or message.number >= commit.offered:
                    inbox[place] = message = replace(message, consumed_run=kept and after.run, consumed_by=kept)
            if message.number in consumed:
                by = consumed[message.number] or None
                inbox[place] = replace(message, consumed_run=by and after.run, consumed_by=by)

    # Workers

    def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """Keep a new incarnation."""
        fresh = replace(worker, started_at=self.now, due_at=self.now + silence)
        return self.workers.setdefault(worker.id, fresh)

    def beat(self, beat: Beat) -> BeatAnswer:
        """Count the beat and prolong the leases that are still held."""
        if not self.alive(beat.worker):
            return BeatAnswer(False, self.now)
        worker = self.workers[beat.worker]
        self.workers[worker.id] = replace(worker, beats=worker.beats + 1, due_at=self.now + beat.silence)
        lost: list[bytes] = []
        for renewal in beat.renewals:
            row = self.rows.get(renewal.process)
            if row is None or (row.owner, row.token) != (beat.worker, renewal.token):
                lost.append(renewal.process)
                continue
            progress = row.progress if renewal.progress is None else renewal.progress
            due_at = max(row.due_at or 0, self.now + beat.lease)
            self.rows[row.id] = replace(row, due_at=due_at, progress=progress)
        return BeatAnswer(True, self.now, tuple(lost))

    def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """End an incarnation once, if it has not beaten since."""
        known = self.workers.get(worker)
        if known is None or known.ended_at is not None or (beats is not None and known.beats > beats):
            return False
        self.workers[worker] = replace(known, ended_at=self.now, due_at=None, died=died)
        return True

    # Pruning

    def prune(self, finished: int, keys: int, limit: int, behind: bytes | None = None) -> Pruned:
        """Forget what finished long ago, keys whose time is over, and former runs that ended long ago."""
        old = [row for row in self.rows.values() if row.status in FINAL and row.changed_at <= self.now - finished]
        old = sorted(old, key=lambda row: (row.changed_at, row.id))[:limit]
        for row in old:
            self._forget(row)
            if row.key is not None:
                self.kept[row.kind, row.key] = KeptKey(row.id, row.input, self.now + keys)
        over = sorted((kept.until, key) for key, kept in self.kept.items() if kept.until <= self.now)[:limit]
        for _, key in over:
            del self.kept[key]
        runs, place = self._prune_runs(finished, keys, limit, behind)
        return Pruned(len(old), len(over), runs, place)

    def _forget(self, row: Process) -> None:
        """Forget a process with all that belongs to it."""
        del self.rows[row.id]
        self.inboxes.pop(row.id, None)
        for run in range(1, row.run + 1):
            self.events.pop((row.id, run), None)

    def _prune_runs(self, finished: int, keys: int, limit: int, behind: bytes | None) -> tuple[int, bytes | None]:
        """Forget former runs of a page of unfinished processes; the present one and the one before it stay."""
        page = sorted(
            row.id for row in self.rows.values() if row.run > 2 and not row.final and row.id > (behind or b"")
        )
        before, known, runs = self.now - finished, self.now - max(finished, keys), 0
        for id in page[:limit]:
            whole = self.first_runs.get(id, 1)
            while (first := self.first_runs.get(id, 1)) + 1 < self.rows[id].run:
                if self.events[id, first + 1][0].at > before:
                    break
                old = self.events.get((id, first), [])
                self.events[id, first] = [event for event in old if event.type in ANSWERS]
                self.first_runs[id] = first + 1
                runs += 1
            first = self.first_runs.get(id, 1)
            if first == whole:
                continue
            for run in range(1, first):
                self.events[id, run] = [one for one in self.events.get((id, run), []) if one.at > known]
            taken = {event.message for event in self.events.get((id, first), [])}
            self.inboxes[id] = [
                one
                for one in self.inboxes.get(id, [])
                if one.number in taken or (one.consumed_run or first) >= first or one.at > before
                or (one.key is not None and one.at > known)
            ]  # fmt: skip
        return runs, page[limit - 1] if len(page) >= limit else None

    def records(self, table: type[Queue], changes: Sequence[Queue] = ()) -> list[Queue]:
        """Keep the changed queues whose version is the next one; what the store itself keeps there stays."""
        for change in changes:
            old = self.queues.get(change.name)
            if change.version == (old.version if old else 0) + 1:
                self.queues[change.name] = queue.changed(old, change)
        return [row for _, row in sorted(self.queues.items(), key=lambda pair: pair[0].encode())]

    def search(self, search: Search) -> list[Process]:
        """What a search finds, newest first; or the rows of one kind of overdue, the longest overdue first."""
        if search.overdue is not None:
            return overdue(self, search)
        found = sorted(
            (row for row in self.rows.values() if _matches(row, search)), key=lambda row: row.id, reverse=True
        )
        return found[: search.limit]

    def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """How many a search would find on all its pages, by kind and status."""
        order = list(Status)
        search = replace(search, before_id=None)
        pairs = Counter((row.kind, row.status) for row in self.rows.values() if _matches(row, search))
        found = sorted(pairs.items(), key=lambda pair: (pair[0][0].encode(), order.index(pair[0][1])))
        return [(kind, status, number) for (kind, status), number in found]

    def inbox(self, process: bytes) -> list[Message]:
        """All messages of one process, by number."""
        return self.inboxes.get(process, [])

    def history(self, process: bytes) -> list[Event]:
        """All events of one process, run by run."""
        row = self.rows[process]
        return [event for run in range(1, row.run + 1) for event in self.events.get((process, run), [])]


def _matches(row: Process, search: Search) -> bool:
    known = json.decode(row.attributes or b"{}")
    return (
        (search.ids is None or row.id in search.ids)
        and (search.kind is None or row.kind == search.kind)
        and (not search.roots or row.parent is None)
        and (search.key is None or row.key == search.key)
        and (search.key_prefix is None or (row.key is not None and row.key.startswith(search.key_prefix)))
        and (not search.statuses or row.status in search.statuses)
        and (search.created_from is None or row.created_at >= search.created_from)
        and (search.created_to is None or row.created_at < search.created_to)
        and all(name in known and known[name] == json.decode(text) for name, text in search.attributes)
        and (search.before_id is None or row.id < search.before_id)
    )


def _only_reminds(row: Process, after: Process) -> bool:
    """Whether a reminder follows another one and nothing has changed: since when a process waits stays as it was."""
    heard = row.status is not Status.RUNNING or row.inbox == row.seen
    return row.reminder and heard and (row.events, row.status) == (after.events, after.status)
