"""Records as PostgreSQL takes and answers them: tuples in the order of the schema's types, and rows read back.

Fields that are seldom used stand in a tuple of their own. If a whole batch has only the defaults there, these tuples
are not sent: the functions put the defaults back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import asyncpg
from msgspec import json

from perdure.errors import BadRecord
from perdure.kernel.commit import APPLIED, CREATED, Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType, SendAnswer, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import MALFORMED, Statuses, Types
from perdure.kernel.worker import WorkerRow
from perdure.store.base import FoundRows, Search

_start_rare = attrgetter(
    "status", "run", "reminder", "seen", "deaths", "alone_deaths", "deadline", "priority", "attributes", "state",
    "progress", "result", "error", "parent", "share", "cost",
)  # fmt: skip
_START_DEFAULTS = (Status.RUNNING, 1, False, 0, 0, 0, None, 4, None, None, None, None, None, None, None, 1)
_commit_rare = attrgetter("reminder", "deaths", "alone_deaths", "deadline", "priority", "state", "progress", "error")
_COMMIT_DEFAULTS = (False, 0, 0, None, 4, None, None, None)

_messages = attrgetter("messages")
id_of = attrgetter("after.id")


def start_records(starts: Sequence[Start]) -> tuple[Any, ...]:
    """The arguments of the query ``start``; the starts are sorted by key if they have keys."""
    rows = [start.process for start in starts]
    rare = [_start_rare(row) for row in rows]
    return (
        [
            (
                row.id,
                row.kind,
                row.key,
                row.input,
                row.version,
                row.token,
                row.owner,
                start.lease,
                row.due_at,
                row.events,
                row.awaiting,
                row.code,
                row.created_at or None,
                row.opened_at,
            )
            for start, row in zip(starts, rows, strict=True)
        ],
        None if rare.count(_START_DEFAULTS) == len(rare) else [_with_text(columns, 8) for columns in rare],
        list({row.owner for row in rows} - {None}) or None,
        _event_records(starts),
        any(row.key is not None for row in rows),
        any(row.owner is None for row in rows),
    )


def commit_alone(commit: Commit) -> tuple[Any, ...] | None:
    """The arguments of the query ``commit_alone``; None if this commit needs the longer way."""
    if commit.offered is not None:
        return None
    (records, rare, events, consumed, published) = commit_records((commit,))
    return records[0], rare and rare[0], events, consumed, published


def outward_alone(commit: Commit) -> tuple[Any, ...] | None:
    """The arguments of the query ``commit_outward_alone``; None if this commit needs the longer way."""
    if commit.offered is not None:
        return None
    (records, rare, events, consumed, children, children_rare, _, letters, published) = outward_records((commit,))
    return records[0], rare and rare[0], events, consumed, children, children_rare, letters, published


def commit_records(commits: Sequence[Commit]) -> tuple[Any, ...]:
    """The arguments of the query ``commit``; the commits are sorted by id."""
    rare = [_commit_rare(commit.after) for commit in commits]
    more = any(commit.offered is not None or commit.attributes_set or commit.progress_kept for commit in commits)
    return (
        [
            (
                row.id,
                commit.token,
                commit.version,
                row.token - commit.token,
                row.status,
                row.run,
                row.owner,
                commit.lease,
                row.due_at,
                row.seen,
                row.events,
                row.awaiting,
                row.result,
                row.code,
                row.opened_at,
                commit.not_before or None,
            )
            for commit in commits
            for row in (commit.after,)
        ],
        None
        if rare.count(_COMMIT_DEFAULTS) == len(rare) and not more
        else [
            (*first, _attributes(commit), state, b"" if commit.progress_kept else progress, error, commit.offered)
            for (*first, state, progress, error), commit in zip(rare, commits, strict=True)
        ],
        _event_records(commits),
        [(place, *pair) for place, commit in enumerate(commits, 1) for pair in commit.consumed] or None,
        [commit.after.id for commit in commits if commit.published] or None,
    )


def _attributes(commit: Commit) -> str | None:
    """The new value of the column: None leaves it as it is, the JSON null empties it."""
    if not commit.attributes_set:
        return None
    (text,) = _with_text((commit.after.attributes,), 0)
    return "null" if text is None else text


def outward_records(commits: Sequence[Commit]) -> tuple[Any, ...]:
    """The arguments of the query ``commit_outward``; the commits are sorted by id, their children have no keys."""
    starts = [start for commit in commits for start in commit.starts]
    children, rare = start_records(starts)[:2]
    *written, published = commit_records(commits)
    return (
        *written,
        children or None,
        rare,
        [place for place, commit in enumerate(commits, 1) for _ in commit.starts] or None,
        _letters(commit.sends for commit in commits),
        published,
    )


def bringing_alone(commit: Commit) -> tuple[Any, ...] | None:
    """The arguments of the query ``commit_bringing_alone``; None if this commit needs the longer way."""
    if commit.starts or commit.sends:
        return None
    (records, rare, events, consumed, _, _, _, _, published, brought, received) = bringing_records((commit,))
    return None if consumed else (records[0], rare and rare[0], events, published, brought[0], received[0])


def bringing_records(commits: Sequence[Commit]) -> tuple[Any, ...]:
    """The arguments of the query ``commit_bringing``; the commits are sorted by id, their children have no keys."""
    records, rare, events, consumed, *outward = outward_records(commits)
    numbers = {(place, one.brings.number) for place, one in enumerate(commits, 1) if one.brings is not None}
    return (
        records,
        rare,
        events,
        [one for one in consumed if one[:2] not in numbers] or None,
        *outward,
        _letters(() if commit.brings is None else (commit.brings,) for commit in commits),
        [one for one in consumed if one[:2] in numbers],
    )


def first_messages(starts: Sequence[Start]) -> list[tuple[Any, ...]] | None:
    """The last argument of the query ``start_telling``; None if no start brings messages."""
    return _letters(map(_messages, starts)) if any(map(_messages, starts)) else None


def _letters(sent: Iterable[Sequence[Message]]) -> list[tuple[Any, ...]] | None:
    return [
        (place, one.id, one.process, one.type, one.name, one.payload, one.key, one.sender)
        for place, messages in enumerate(sent, 1)
        for one in messages
    ] or None


def _event_records(records: Sequence[Start | Commit]) -> list[tuple[Any, ...]] | None:
    return [
        (
            place,
            event.number,
            event.turn,
            event.type,
            event.at,
            event.place,
            event.name,
            event.payload,
            event.digest,
            event.message,
        )
        for place, record in enumerate(records, 1)
        for event in record.events
    ] or None


def _with_text(columns: tuple[Any, ...], attributes: int) -> tuple[Any, ...]:
    """The same columns with the attributes as text."""
    value = columns[attributes]
    if value is None:
        return columns
    try:
        return (*columns[:attributes], value.decode(), *columns[attributes + 1 :])
    except UnicodeDecodeError as error:
        raise BadRecord(f"attributes must be JSON in UTF-8: {error}; correct the value or leave it out") from None


def send_columns(messages: Sequence[Message]) -> tuple[Any, ...]:
    """The arguments of the query ``send``."""
    return (
        [message.id for message in messages],
        [message.process for message in messages],
        [message.type for message in messages],
        [message.name for message in messages],
        [message.payload for message in messages],
        [message.key for message in messages],
        [message.sender for message in messages],
    )


def search_columns(search: Search) -> tuple[Any, ...]:
    """The arguments that the queries ``search`` and ``count`` share; an empty tuple if no row can match."""
    texts = [search.kind, search.key, search.key_prefix, *(text for pair in search.attributes for text in pair)]
    nobody = search.ids is not None and not search.ids  # the planner would choose any index for an empty list
    if nobody or any(text and not storable(text) for text in texts):
        return ()
    return (
        None if search.ids is None else list(search.ids),
        search.kind,
        search.key,
        search.key_prefix,
        list(search.statuses) or None,
        search.created_from,
        search.created_to,
        [name for name, _ in search.attributes] or None,
        [value for _, value in search.attributes] or None,
        search.without_tasks,
        search.roots,
    )


def storable(text: str) -> bool:
    """Whether PostgreSQL can hold this text at all: it has no NUL, and no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


STATUSES: Mapping[str, Status] = Statuses({status.value: status for status in Status})
VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}
TYPES: Mapping[int, EventType] = Types({int(type): type for type in EventType})
_COLUMNS = len(Process.__struct_fields__)
_STATUS = Process.__struct_fields__.index("status")
_ATTRIBUTES = Process.__struct_fields__.index("attributes")
MESSAGE_TYPES: Mapping[int, MessageType] = Types({int(type): type for type in MessageType})


def start_answers(starts: Sequence[Start], row: asyncpg.Record) -> list[StartAnswer]:
    """What became of each start."""
    now = row["now"]
    answers = [StartAnswer(CREATED, start.process.id, len(start.messages), now) for start in starts]
    if row["odd"] is not None:
        for place, verdict, id, inbox in zip(row["odd"], row["verdicts"], row["ids"], row["inboxes"], strict=True):
            found = StartVerdict(verdict)
            answers[place - 1] = StartAnswer(found, id, inbox, now, found is CREATED)
    return answers


def commit_answers(commits: Sequence[Commit], row: asyncpg.Record) -> list[CommitAnswer]:
    """What became of each commit, in the order in which they were sent; equal answers are one object."""
    now, inboxes = row["now"], row["inboxes"]
    answers = [CommitAnswer(Verdict.APPLIED, 0, now)] * len(commits)
    if inboxes is not None:
        answers = [CommitAnswer(APPLIED, inbox, now) for inbox in inboxes]
    if row["odd"] is not None:
        for place, verdict in zip(row["odd"], row["verdicts"], strict=True):
            answers[place - 1] = CommitAnswer(VERDICTS[verdict], answers[place - 1].inbox, now)
    return answers


def send_answers(messages: Sequence[Message], row: asyncpg.Record) -> list[SendAnswer]:
    """What became of each message."""
    now = row["now"]
    return [
        SendAnswer(SendVerdict(verdict), message.process, number, owner, now)
        for message, verdict, number, owner in zip(
            messages, row["verdicts"], row["numbers"], row["owners"], strict=True
        )
    ]


def claim_head(rows: Sequence[asyncpg.Record]) -> tuple[int, int | None, bool, bool | None]:
    """What a claim answers besides the rows taken; it may answer in several parts: see ``claim_queued``.

    The last value is whether suspects are due; None if suspects are due but their queues have no room for them.
    """
    next_due_at = min((row[1] for row in rows if row[1] is not None), default=None)
    suspects = any(row[3] for row in rows) or (None if any(row[3] is None for row in rows) else False)
    return rows[0][0], next_due_at, all(row[2] for row in rows), suspects


def process_of(columns: Sequence[Any]) -> Process:
    """A process from the columns of ``process_out``."""
    fields = [*columns]
    fields[_STATUS] = STATUSES[fields[_STATUS]]
    if fields[_ATTRIBUTES] is not None:
        # jsonb gives back its own spelling; ours has no blanks and sorted names, on every store.
        with suppress(*MALFORMED):  # its numbers may be larger than ours: then it stays as PostgreSQL spells it
            fields[_ATTRIBUTES] = json.encode(json.decode(fields[_ATTRIBUTES]), order="sorted")
    return Process(*fields)


def page_of(rows: Sequence[asyncpg.Record]) -> FoundRows:
    """A page from rows with the columns of ``process_out``, and at last how many there would be without a bound."""
    page = FoundRows([process_of(row[:_COLUMNS]) for row in rows])
    page.left = rows[0][-1] - len(rows) if rows else 0
    return page


def event_of(row: asyncpg.Record) -> Event:
    """An event from the columns of ``event_out``."""
    _, _, number, turn, type, *rest = row
    return Event(number, turn, TYPES[type], *rest)


def message_of(row: asyncpg.Record) -> Message:
    """A message from the columns of ``message_out``."""
    id, process, type, *rest = row
    return Message(id, process, MESSAGE_TYPES[type], *rest)


def worker_of(row: asyncpg.Record) -> WorkerRow:
    """A worker from the columns of the query ``workers``."""
    return WorkerRow(*row)
