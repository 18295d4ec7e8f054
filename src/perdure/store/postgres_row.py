"""Records as columns and columns as records: what goes to PostgreSQL and what comes back.

A batch travels as one array per column. An array in which every value is the column's default is sent as null, so
that what is rarely used costs nothing; the functions put the default back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from msgspec import json

from perdure.errors import BadRecord
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType, SendAnswer, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Worker
from perdure.store.base import Search

STATUSES: Mapping[str, Status] = {status.value: status for status in Status}
VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}
TYPES: Mapping[int, EventType] = {int(type): type for type in EventType}
_STATUS = Process.__struct_fields__.index("status")
_ATTRIBUTES = Process.__struct_fields__.index("attributes")
MESSAGE_TYPES: Mapping[int, MessageType] = {int(type): type for type in MessageType}


def sparse(values: list[Any], default: Any = None) -> list[Any] | None:
    """The column, or None if it holds nothing but its default."""
    return None if values.count(default) == len(values) else values


def start_columns(starts: Sequence[Start]) -> tuple[Any, ...]:
    """The arguments of the query ``start``."""
    rows = [start.process for start in starts]
    owners = sparse([row.owner for row in rows])
    return (
        [row.id for row in rows],
        [row.kind for row in rows],
        sparse([row.key for row in rows]),
        [row.input for row in rows],
        sparse([row.status for row in rows], Status.RUNNING),
        sparse([row.run for row in rows], 1),
        sparse([row.version for row in rows], 0),
        sparse([row.token for row in rows], 0),
        owners,
        sparse([start.lease for start in starts], 0),
        sparse([row.due_at for row in rows]),
        sparse([row.reminder for row in rows], False),
        sparse([row.seen for row in rows], 0),
        sparse([row.events for row in rows], 0),
        sparse([row.awaiting for row in rows]),
        sparse([row.deaths for row in rows], 0),
        sparse([row.alone_deaths for row in rows], 0),
        sparse([row.deadline for row in rows]),
        sparse([row.priority for row in rows], 4),
        _texts([row.attributes for row in rows]),
        sparse([row.state for row in rows]),
        sparse([row.progress for row in rows]),
        sparse([row.result for row in rows]),
        sparse([row.error for row in rows]),
        sparse([row.parent for row in rows]),
        sparse([row.code for row in rows], ""),
        sparse([row.created_at or None for row in rows]),
        sparse([row.opened_at for row in rows]),
        None if owners is None else list({owner for owner in owners if owner is not None}),
        *_event_columns(starts),
    )


def commit_columns(commits: Sequence[Commit]) -> tuple[Any, ...]:
    """The arguments of the query ``commit``."""
    rows = [commit.after for commit in commits]
    return (
        [row.id for row in rows],
        [commit.token for commit in commits],
        [commit.version for commit in commits],
        sparse([commit.after.token - commit.token for commit in commits], 0),
        sparse([row.status for row in rows], Status.RUNNING),
        sparse([row.run for row in rows], 1),
        sparse([row.owner for row in rows]),
        sparse([commit.lease or None for commit in commits]),
        sparse([row.due_at for row in rows]),
        sparse([row.reminder for row in rows], False),
        [row.seen for row in rows],
        [row.events for row in rows],
        sparse([row.awaiting for row in rows]),
        sparse([row.deaths for row in rows], 0),
        sparse([row.alone_deaths for row in rows], 0),
        sparse([row.deadline for row in rows]),
        sparse([row.priority for row in rows], 4),
        _texts([row.attributes for row in rows]),
        sparse([row.state for row in rows]),
        sparse([row.progress for row in rows]),
        sparse([row.result for row in rows]),
        sparse([row.error for row in rows]),
        sparse([row.code for row in rows], ""),
        sparse([row.opened_at for row in rows]),
        sparse([commit.not_before or None for commit in commits]),
        sparse([commit.offered for commit in commits]),
        *_event_columns(commits),
        *_consumed_columns(commits),
    )


def _texts(values: list[bytes | None]) -> list[str | None] | None:
    if values.count(None) == len(values):
        return None
    try:
        return [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise BadRecord(f"attributes must be JSON in UTF-8: {error}; mend or leave out the value") from None


def _event_columns(records: Sequence[Start | Commit]) -> tuple[Any, ...]:
    places = [place for place, record in enumerate(records, 1) for _ in record.events]
    if not places:
        return (None,) * 10
    events = [event for record in records for event in record.events]
    return (
        places,
        [event.number for event in events],
        [event.turn for event in events],
        [event.type for event in events],
        [event.at for event in events],
        [event.place for event in events],
        [event.name for event in events],
        sparse([event.payload for event in events]),
        sparse([event.digest for event in events]),
        sparse([event.message for event in events]),
    )


def _consumed_columns(commits: Sequence[Commit]) -> tuple[Any, ...]:
    places = [place for place, commit in enumerate(commits, 1) for _ in commit.consumed]
    if not places:
        return (None,) * 3
    pairs = [pair for commit in commits for pair in commit.consumed]
    return (places, [number for number, _ in pairs], [event for _, event in pairs])


def storable(text: str) -> bool:
    """Whether PostgreSQL can hold this text at all: it has no NUL, and no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


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


def start_answers(starts: Sequence[Start], row: asyncpg.Record) -> list[StartAnswer]:
    """What became of each start."""
    now = row["now"]
    answers = [StartAnswer(StartVerdict.CREATED, start.process.id, 0, now) for start in starts]
    if row["odd"] is not None:
        for place, verdict, id, inbox in zip(row["odd"], row["verdicts"], row["ids"], row["inboxes"], strict=True):
            answers[place - 1] = StartAnswer(StartVerdict(verdict), id, inbox, now)
    return answers


def commit_answers(commits: Sequence[Commit], row: asyncpg.Record) -> list[CommitAnswer]:
    """What became of each commit; equal answers are one object."""
    now, inboxes = row["now"], row["inboxes"]
    if inboxes is None:
        answers = [CommitAnswer(Verdict.APPLIED, 0, now)] * len(commits)
    else:
        answers = [CommitAnswer(Verdict.APPLIED, inbox, now) for inbox in inboxes]
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


def process_of(columns: Sequence[Any]) -> Process:
    """A process from the columns of ``process_out``."""
    fields = [*columns]
    fields[_STATUS] = STATUSES[fields[_STATUS]]
    if fields[_ATTRIBUTES] is not None:
        # jsonb gives back its own spelling; ours has no blanks and sorted names, on every store.
        fields[_ATTRIBUTES] = json.encode(json.decode(fields[_ATTRIBUTES]), order="sorted")
    return Process(*fields)


def event_of(row: asyncpg.Record) -> Event:
    """An event from the columns of ``event_out``."""
    _, _, number, turn, type, *rest = row
    return Event(number, turn, TYPES[type], *rest)


def message_of(row: asyncpg.Record) -> Message:
    """A message from the columns of ``message_out``."""
    id, process, type, *rest = row
    return Message(id, process, MESSAGE_TYPES[type], *rest)


def worker_of(row: asyncpg.Record) -> Worker:
    """A worker from the columns of the query ``workers``."""
    return Worker(*row)


def search_columns(search: Search) -> tuple[Any, ...]:
    """The arguments that the queries ``search`` and ``count`` share; none if no row can have what is asked for."""
    texts = [search.kind, search.key, search.key_prefix, *(text for pair in search.attributes for text in pair)]
    if any(text and not storable(text) for text in texts):
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
    )
