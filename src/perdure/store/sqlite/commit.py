"""Commits on SQLite: fences compared under the write lock, then everything written set by set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import json
from msgspec.structs import replace

from perdure.errors import BadRecord
from perdure.kernel.child import is_task
from perdure.kernel.commit import Commit, CommitAnswer, Removal, Start, Verdict
from perdure.kernel.message import Message
from perdure.kernel.process import FINAL, Status
from perdure.store.sqlite import queue, row, send, start, upkeep
from perdure.store.sqlite.row import AFTER_CELLS, EVENT_CELLS, MESSAGE_CELLS, after_cells, event_cells, message_cells
from perdure.store.sqlite.writer import Collision, Transaction


def commit_at_once(transaction: Transaction, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write commits without looking first; raises Collision if one of them is not simply applied.

    What is simple: its fence fits, its timers are due, and the row has exactly the messages that it has seen.
    """
    now = transaction.now
    batch = _Batch(transaction)
    fitting = CommitAnswer(Verdict.APPLIED, 0, now)
    answers: list[CommitAnswer] = []
    brings = False
    for commit in commits:
        if commit.not_before > now:
            raise Collision
        seen = commit.after.seen
        if seen:
            brings = brings or commit.brings is not None
            batch.add(commit, seen if commit.brings is None else seen - 1)
            answers.append(CommitAnswer(Verdict.APPLIED, seen, now))
        else:
            batch.add(commit, 0)
            answers.append(fitting)
    if brings and _known_keys(transaction, commits):
        raise Collision
    batch.write()
    return answers


def commit(transaction: Transaction, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write the commits whose fences fit; each is answered by itself, in the order given."""
    now = transaction.now
    if len({commit.after.id for commit in commits}) < len(commits):
        return _one_by_one(transaction, commits)
    odd, known_keys = _look(transaction, commits), _known_keys(transaction, commits)
    fitting = CommitAnswer(Verdict.APPLIED, 0, now)
    answers: list[CommitAnswer] = [fitting] * len(commits)
    batch = _Batch(transaction)
    for n, commit in enumerate(commits):
        inbox = 0
        if n in odd:
            token, version, inbox = odd[n]
            if token != commit.token or version != commit.version:
                known = token is not None and _known(transaction, commit)
                gone = token is None and commit.removes is Removal.PROCESS  # it was removed before
                known = known or gone
                answers[n] = CommitAnswer(Verdict.APPLIED if known else Verdict.REFUSED, inbox or 0, now)
                continue
        verdict = Verdict.READ_FIRST if n in known_keys else _verdict(commit, inbox, now)
        if verdict is Verdict.APPLIED:
            batch.add(commit, inbox)
            inbox += commit.brings is not None
        if verdict is not Verdict.APPLIED or inbox:
            answers[n] = CommitAnswer(verdict, inbox, now)
    try:
        batch.write()
    except Collision:  # the fences fitted under the lock: so one row holds a value that does not equal what was read
        raise BadRecord(
            "the row of a process holds a value that no commit can match; repair the row, or end the process: "
            "`perdure terminate`"
        ) from None
    return answers


def commit_and_remove(transaction: Transaction, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write a batch, then remove what its commits remove: a process goes after its last messages were sent."""
    answers = commit(transaction, commits)
    for one, answer in zip(commits, answers, strict=True):
        if answer.verdict is not Verdict.APPLIED:
            continue
        if one.removes is Removal.PROCESS:
            upkeep.remove(transaction.connection, [one.after.id])
        elif one.removes is Removal.KEY:
            transaction.connection.run("release_key", process=one.after.id)
    return answers


def _one_by_one(transaction: Transaction, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write a batch with several commits of one process: each sees what the commits before it wrote."""
    return [answer for one in commits for answer in commit(transaction, [one])]


def _look(transaction: Transaction, commits: Sequence[Commit]) -> dict[int, tuple[int | None, int | None, int]]:
    """Token, version and inbox of the rows that are not simply as the commits expect them."""
    cells: list[Any] = []
    for n, commit in enumerate(commits):
        cells += (n, bytearray(commit.after.id), commit.token, commit.version)
    odd: dict[int, tuple[int | None, int | None, int]] = {}
    for (found,) in transaction.connection.ask("look_at_fences", 4, cells):
        if found != "[]":
            odd |= {n: (token, version, inbox) for n, token, version, inbox in json.decode(found)}
    return odd


def _known_keys(transaction: Transaction, commits: Sequence[Commit]) -> set[int]:
    """The places of commits that bring a letter whose key the inbox has already."""
    cells: list[Any] = []
    for n, commit in enumerate(commits):
        if commit.brings is not None and commit.brings.key is not None:
            cells += (n, bytearray(commit.after.id), commit.brings.key)
    return {n for (found,) in transaction.connection.ask("look_at_keys", 3, cells) for n in json.decode(found)}


def _verdict(commit: Commit, inbox: int, now: int) -> Verdict:
    """What becomes of a commit whose fence fits."""
    if commit.brings is not None and inbox != commit.brings.number - 1:
        return Verdict.READ_FIRST
    if commit.not_before > now:
        return Verdict.EARLY
    after = commit.after
    if inbox > after.seen and after.status in FINAL and after.token == commit.token:
        return Verdict.READ_FIRST
    return Verdict.APPLIED


def _known(transaction: Transaction, commit: Commit) -> bool:
    """Whether a commit whose fence does not fit was applied before (rule 5).

    Its first event is compared whole, since two commands that were made from the same row have the same token and
    version. For a commit without events, the row's token and version are compared.
    """
    if commit.removes is Removal.PROCESS:
        return False  # its row would not be there
    after = commit.after
    if not commit.events:
        return transaction.connection.one("read_fence", id=after.id) == (after.token, after.version)
    first = replace(commit.events[0], token=after.token, version=after.version)
    found = transaction.connection.one("read_event", process=after.id, run=after.run, number=first.number)
    return [first] == [event for _, event in row.events(found)]


class _Batch:
    """The cells to be written for the commits of one transaction that are applied."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._now = transaction.now
        self._rows: list[Any] = []
        self._events: list[Any] = []
        self._offered: list[Any] = []
        self._reopened: list[Any] = []
        self._consumed: list[Any] = []
        self._left: list[Any] = []
        self._brought: list[Any] = []
        self._starts: list[Start] = []
        self._sends: list[Message] = []

    def add(self, commit: Commit, inbox: int) -> None:
        """Add one commit; a row that is released with an unheard message is due now (law nothing_unheard)."""
        after = commit.after
        owner, due_at, reminder = None, after.due_at, after.reminder
        if commit.lease:
            owner, due_at, reminder = after.owner, self._now + commit.lease, False
        elif inbox > after.seen and after.status is Status.RUNNING:
            due_at, reminder = self._now, False
            self._transaction.left_due = self._transaction.unheard = True
        id = bytearray(after.id)
        self._rows += after_cells(id, commit, owner, due_at, reminder, inbox, self._now)
        for event in commit.events:
            self._events += event_cells(id, after.run, after.token, after.version, event)
        if commit.offered is not None:
            self._offered += (id, commit.offered, after.run - 1)
            self._reopened += (id, after.run)
        for number, event_number in commit.consumed:
            if commit.brings is not None and number == commit.brings.number:
                self._brought += (*message_cells(id, commit.brings, number, self._now), after.run, event_number)
            elif event_number:
                self._consumed += (id, number, after.run, event_number)
            else:
                self._left += (id, number)
        if commit.starts or commit.sends:
            self._starts += commit.starts
            self._sends += commit.sends
        if commit.published:
            self._transaction.published = True

    def write(self) -> None:
        """Write everything, in a handful of statements; raises Collision if a row is not as expected."""
        if not self._rows:
            return
        if self._connection.write("update_processes", AFTER_CELLS, self._rows) * AFTER_CELLS != len(self._rows):
            raise Collision
        if self._events:
            self._connection.write("insert_events", EVENT_CELLS, self._events)
        if self._offered:
            self._connection.write("offer_messages", 3, self._offered)
            self._connection.write("keep_messages", 2, self._reopened)
        if self._consumed:
            self._connection.write("consume_messages", 4, self._consumed)
        if self._left:
            self._connection.write("leave_messages", 2, self._left)
        if self._brought:
            self._connection.write("bring_messages", MESSAGE_CELLS + 2, self._brought)
        if self._starts or self._sends:
            self._write_outward()

    def _write_outward(self) -> None:
        """Start children and send messages, after the commits: a parent and its child may end in one batch."""
        if self._starts:
            start.start(self._transaction, self._starts)
        if self._sends:
            self._transaction.letters += send.send(self._transaction, self._sends)
            ended = {message.name for message in self._sends if is_task(message.name)}  # an answer's name is its kind
            if ended:
                self._transaction.freed = queue.freed(self._connection, ended)
        self._transaction.left_due = True
