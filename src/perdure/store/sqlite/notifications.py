"""What the doors of SQLite leave for others to look at, named where it is known."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.commit import Commit, Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.kernel.process import Process
from perdure.store.notifications import Notification, of_due, tails
from perdure.store.sqlite.writer import Transaction


def of_starts(starts: Sequence[Start], answers: Sequence[StartAnswer], transaction: Transaction) -> Notification:
    """The notification of new processes that nobody owns."""
    free = [start.process for start in starts if start.process.owner is None and not start.process.final]
    return _of_free(free, transaction)


def of_sends(messages: Sequence[Message], answers: Sequence[SendAnswer], transaction: Transaction) -> Notification:
    """The notification of messages: told to whoever has the targets, or due."""
    return Notification(told=_owned(answers), some_due=any(answer.owner is None for answer in answers))


def of_commits(commits: Sequence[Commit], answers: Sequence[object], transaction: Transaction) -> Notification:
    """The notification of processes let go, ended or taken, of their children and their messages."""
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
    """Rows that nobody owns: those due later are looked for, so that whoever may take them is there in time."""
    now = [row for row in rows if row.due_at is None or row.due_at <= transaction.now]
    if len(now) < len(rows):
        return Notification(some_due=True)
    return of_due(now)


def _owned(answers: Sequence[SendAnswer]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(answer.process for answer in answers if answer.owner is not None))
