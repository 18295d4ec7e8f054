"""Starting on SQLite: new rows with the events of their first turns, and the answer for a taken key (rule 24)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.errors import BadRecord
from perdure.kernel.commit import CREATED, Start, StartAnswer, StartVerdict
from perdure.store.sqlite import kind, send
from perdure.store.sqlite.connection import NOTHING
from perdure.store.sqlite.row import EVENT_CELLS, PROCESS_CELLS, event_cells, process_cells
from perdure.store.sqlite.writer import Collision, Transaction


def input_digest(input: bytes) -> bytes:
    """What is kept of a pruned process's input, to tell the same input from another one."""
    return blake2b(input, digest_size=16).digest()


class _Holder(Struct):
    """The process that has the key or the id of a start: its id, its inbox, and whether its input is the same."""

    id: bytes
    inbox: int
    same: bool


def start_at_once(transaction: Transaction, starts: Sequence[Start]) -> list[StartAnswer]:
    """Store starts without looking first; raises Collision if one of them has its id or key taken."""
    if _insert(transaction, starts) != len(starts):
        raise Collision
    _insert_events(transaction, starts)
    _send(transaction, starts)
    now = transaction.now
    return [StartAnswer(CREATED, start.process.id, len(start.messages), now) for start in starts]


def start(transaction: Transaction, starts: Sequence[Start]) -> list[StartAnswer]:
    """Store what is new; each start is answered by itself, in the order given."""
    taken = _look(transaction, starts)
    keys: dict[tuple[str, str], Start] = {}
    ids: set[bytes] = set()
    fresh: list[Start] = []
    answers: list[StartAnswer] = []
    for n, start in enumerate(starts):
        process = start.process
        key = None if process.key is None else (process.kind, process.key)
        holder = taken.get(n)
        if process.id in ids:
            holder = _Holder(process.id, 0, True)
        elif holder is None and key in keys:
            first = keys[key].process
            holder = _Holder(first.id, 0, first.input == process.input)
        verdict = CREATED
        if holder is not None:
            if holder.id != process.id:
                verdict = StartVerdict.EXISTS if holder.same else StartVerdict.CONFLICT
            again = verdict is CREATED
            answers.append(StartAnswer(verdict, holder.id, holder.inbox, transaction.now, again))
            continue
        if process.owner is not None and not transaction.alive(process.owner):
            answers.append(StartAnswer(StartVerdict.REFUSED, process.id, 0, transaction.now))
            continue
        ids.add(process.id)
        if key is not None:
            keys[key] = start
        fresh.append(start)
        answers.append(StartAnswer(verdict, process.id, len(start.messages), transaction.now))
    if fresh:
        if (inserted := _insert(transaction, fresh)) != len(fresh):
            limited = _limited(transaction, fresh)
            if inserted + len(limited) != len(fresh):
                raise BadRecord("a process to be started has no kind; name its workflow")
            fresh = [start for start in fresh if start.process.id not in limited]
            limit = StartVerdict.LIMITED
            answers = [replace(one, verdict=limit, inbox=0) if one.id in limited else one for one in answers]
        _insert_events(transaction, fresh)
        _send(transaction, fresh)
    return answers


def _limited(transaction: Transaction, starts: Sequence[Start]) -> set[bytes]:
    """Those that have begun without a place among the processes of their kind, which has limits."""
    kinds = kind.limited_kinds(transaction.connection)
    rows = (start.process for start in starts)
    return {row.id for row in rows if row.token and row.share is None and row.kind in kinds}


def _look(transaction: Transaction, starts: Sequence[Start]) -> dict[int, _Holder]:
    cells: list[Any] = []
    for n, start in enumerate(starts):
        process = start.process
        key = NOTHING if process.key is None else process.key
        cells += (n, bytearray(process.id), process.kind, key, bytearray(process.input))
    taken: dict[int, _Holder] = {}
    for (found,) in transaction.connection.ask("look_at_starts", 5, cells, transaction.now):
        for n, own, own_inbox, holder, inbox, same, kept, digest in json.decode(found):
            process = starts[n].process
            if own:
                taken[n] = _Holder(process.id, own_inbox, True)
            elif holder:
                taken[n] = _Holder(bytes.fromhex(holder), inbox, bool(same))
            else:
                taken[n] = _Holder(bytes.fromhex(kept), 0, bytes.fromhex(digest) == input_digest(process.input))
    return taken


def _insert(transaction: Transaction, starts: Sequence[Start]) -> int:
    now = transaction.now
    cells: list[Any] = []
    for start in starts:
        process = start.process
        cells += process_cells(process, _due_at(start, now), now)
    return transaction.connection.write("insert_processes", PROCESS_CELLS, cells)


def _due_at(start: Start, now: int) -> int | None:
    """When a new row is due: at the end of its lease if it has an owner, else at the given time, or now."""
    process = start.process
    if process.owner is not None:
        return now + start.lease
    if process.final:
        return None
    return process.due_at or now


def _insert_events(transaction: Transaction, starts: Sequence[Start]) -> None:
    cells: list[Any] = []
    for start in starts:
        process = start.process
        id = bytearray(process.id)
        for event in start.events:
            cells += event_cells(id, process.run, process.token, process.version, event)
    if cells:
        transaction.connection.write("insert_events", EVENT_CELLS, cells)


def _send(transaction: Transaction, starts: Sequence[Start]) -> None:
    """Put the first messages into the inboxes of the new rows; the first events of a fork have received some."""
    messages = [message for start in starts for message in start.messages]
    if messages:
        send.send(transaction, messages)
        cells: list[Any] = []
        for start in starts:
            if any(event.message is not None for event in start.events):
                cells += (bytearray(start.process.id), start.process.run)
        if cells:
            transaction.connection.write("keep_messages", 2, cells)
