"""What PostgreSQL answers, as the records of the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import asyncpg
from msgspec import json

from perdure.kernel.commit import APPLIED, CREATED, Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType, SendAnswer, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.recorded import MALFORMED
from perdure.kernel.unknown import Statuses, Types
from perdure.kernel.worker import Worker

STATUSES: Mapping[str, Status] = Statuses({status.value: status for status in Status})
VERDICTS: Mapping[str, Verdict] = {verdict.value: verdict for verdict in Verdict}
TYPES: Mapping[int, EventType] = Types({int(type): type for type in EventType})
_STATUS = Process.__struct_fields__.index("status")
_ATTRIBUTES = Process.__struct_fields__.index("attributes")
MESSAGE_TYPES: Mapping[int, MessageType] = Types({int(type): type for type in MessageType})


def start_answers(starts: Sequence[Start], row: asyncpg.Record) -> list[StartAnswer]:
    """What became of each start."""
    now = row["now"]
    answers = [StartAnswer(CREATED, start.process.id, len(start.messages), now) for start in starts]
    if row["odd"] is not None:
        for place, verdict, id, inbox in zip(row["odd"], row["verdicts"], row["ids"], row["inboxes"], strict=True):
            answers[place - 1] = StartAnswer(StartVerdict(verdict), id, inbox, now)
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
    """What a claim answers beside the rows taken, which it may say in several parts: see ``claim_queued``.

    The last is whether suspects are due, None if there are only such as their queue has no place for.
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
