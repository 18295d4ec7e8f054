"""The process that a start has found under its key: the start is a repeat, or another one may not have that key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import KeyConflict, ProcessNotFound, StoreUnavailable
from perdure.kernel.commit import StartAnswer, StartVerdict
from perdure.kernel.names import id_text
from perdure.kernel.payload import digest
from perdure.kernel.process import Process
from perdure.kernel.stored import why_undecodable

if TYPE_CHECKING:
    from perdure.client.parts import ClientParts


async def refuse_another(parts: ClientParts, process: Process, answer: StartAnswer) -> None:
    """Raise KeyConflict or StoreUnavailable for a start that stored nothing, unless it is a repeat.

    The store has compared bytes: where these differ, the arguments may still be equal but for the order of keys.
    """
    if answer.verdict is not StartVerdict.CONFLICT or not await _is_same(parts, process, answer.id):
        refuse_other_bytes(process, answer)


def refuse_other_bytes(process: Process, answer: StartAnswer) -> None:
    """The same, as the store has compared them; nothing is read."""
    if answer.verdict is StartVerdict.CONFLICT:
        raise KeyConflict(
            f"the key {process.key!r} of kind {process.kind!r} belongs to process {id_text(answer.id)}, "
            "which was started with another input; use another key, or the same input"
        )
    if answer.verdict is StartVerdict.REFUSED:
        raise StoreUnavailable("another worker took this one for dead and ended it; nothing was started, try again")


async def _is_same(parts: ClientParts, process: Process, id: bytes) -> bool:
    """Whether the process with that id has equal arguments; the order of an object's keys does not count.

    Of one that was removed nothing is left to compare but what the store has compared.
    """
    try:
        row = await parts.row(id)
    except ProcessNotFound:
        return False
    return why_undecodable(row.input) is None and digest(row.input) == digest(process.input)
