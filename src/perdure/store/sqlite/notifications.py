"""The notifications of starts, sends and commits on SQLite; they name the processes where these are known."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.commit import Commit, Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.kernel.process import Process
from perdure.store.notifications import Notification, of_due, tails
from perdure.store.sqlite.writer import Transaction


def of_starts(starts: Sequence[Start], answers: Sequence[StartAnswer], transaction: Transaction) -> Notification:
    """The notification of new processes without an owner."""
    free = [start.process for start in starts if start.process.owner is None and not start.process.final]
    return _of_free(free, transaction)


def of_sends(messages: Sequence[Message], answers: Sequence[SendAnswer], transaction: Transaction) -> Notification:
    """The notification of messages: their targets are told if a worker holds them, else due."""
    return Notification(told=_owned(answers), some_due=any(answer.owner is None for answer in answers))


def of_commits(commits: Sequence[Commit], answers: Sequence[object], transaction: Transaction) -> Notification:
    """The notification of processes released, ended or taken, of their children and their messages."""
    free = [start.process for commit in commits for start in commit.starts]
    ended: list[bytes] = []
    taken: list[bytes] = []
    for commit in commits:
        after = commit.after
        if after.token != commit.token:
            taken.append(after.id)
        if commit.lease:
            continue
        if after.due_at is None:
            if after.opened_at != after.created_at:
                ended.append(after.id)
        elif not after.reminder:
            free.append(after)
    notification = _of_free(free, transaction)
    letters = transaction.letters
    return Notification(
        kinds=(*notification.kinds, *transaction.freed),
        due=() if transaction.freed else notification.due,
        told=(*taken, *_owned(letters)),
        ended=tails(ended),
        published=tuple(commit.after.id for commit in commits if commit.published),
        some_due=notification.some_due or transaction.unheard or any(answer.owner is None for answer in letters),
    )


def _of_free(rows: Sequence[Process], transaction: Transaction) -> Notification:
    """Rows without an owner: if one is due later, every worker looks, so that one of them wakes in time."""
    now = [row for row in rows if row.due_at is None or row.due_at <= transaction.now]
    if len(now) < len(rows):
        return Notification(some_due=True)
    return of_due(now)


def _owned(answers: Sequence[SendAnswer]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(answer.process for answer in answers if answer.owner is not None))
