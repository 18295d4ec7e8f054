"""Forking: reads a process as it is now, and stores the new process that shares its history up to a place."""

from __future__ import annotations

from perdure import limits
from perdure.client.parts import ClientParts
from perdure.errors import IllegalMove, InvalidInput, KeyConflict, StoreUnavailable
from perdure.futures import asked
from perdure.kernel import fork
from perdure.kernel.commit import CREATED, Start, StartAnswer, StartVerdict
from perdure.kernel.integrity import refuse_newer
from perdure.kernel.names import check_key, check_name, id_text
from perdure.kernel.plain import shown
from perdure.kernel.run import opening_of
from perdure.kernel.stored import first_trouble
from perdure.kernel.transition import Sender


async def forked(
    parts: ClientParts, id: bytes, at: fork.Place, key: str | None, version: str | None, sender: Sender
) -> tuple[str, StartAnswer]:
    """Store a fork of the process with that id; give its kind, and the answer. Raises as :meth:`Handle.fork` does."""
    if at is not None and type(at) not in (int, str):
        raise InvalidInput(f"at={shown(at)} is no place. Give the number of an event, or the name of a step.")
    if key is not None:
        check_key(key)
    if version is not None:
        check_name(version, "the version of the workflow")
    start = await _decided(parts, id, at, key, version, sender)
    answer: StartAnswer = await asked(parts.doors.start, start)
    if answer.verdict is StartVerdict.REFUSED:
        raise StoreUnavailable("another worker took this one for dead and ended it; nothing was forked, try again")
    if answer.verdict is not CREATED:
        await _refuse_another(parts, start, answer)
    return start.process.kind, answer


async def _decided(
    parts: ClientParts, id: bytes, at: fork.Place, key: str | None, version: str | None, sender: Sender
) -> Start:
    for _ in range(limits.COMMAND_TRIES):
        row = await parts.row(id)
        history = await parts.store.history(id, row.run, limit=row.events) if row.events else ()
        messages = await parts.store.messages([(id, 0)]) if row.inbox else []
        if len(history) != row.events:
            continue  # it has gone on to another run meanwhile, and this one was removed
        refuse_newer(row, history)
        payloads = (*(event.payload for event in history), *(message.payload for message in messages))
        if trouble := first_trouble((row.input, row.attributes, *payloads)):
            raise trouble
        code = row.code if version is None else version
        new, now = parts.machine.new_id(), await parts.store.now()
        return fork.forked(row, history, messages, at, sender, id=new, key=key, code=code, now=now)
    raise IllegalMove(f"process {id_text(id)} kept changing while it was read; nothing was done, try again")


async def _refuse_another(parts: ClientParts, start: Start, answer: StartAnswer) -> None:
    """Raise KeyConflict unless the process that has the key is a fork of the same process at the same place."""
    wanted = opening_of(start.events)
    there = opening_of(await parts.store.history(answer.id, 1, limit=1))
    if (there.forked, there.done) != (wanted.forked, wanted.done):
        raise KeyConflict(
            f"the key {start.process.key!r} of kind {start.process.kind!r} belongs to process {id_text(answer.id)}, "
            "which is no such fork; use another key"
        )
