"""In a turn: what workflow code may ask of its own process: time, chance, identity, signals and state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from perdure.clock import Computer, Duration, in_seconds
from perdure.errors import WorkflowMisuse
from perdure.kernel import payload
from perdure.kernel.checkpoint import is_checkpoint
from perdure.kernel.names import check_key, check_name, id_bytes, id_text
from perdure.turns.asking import OutgoingSignal
from perdure.turns.current import current_turn, turn_for

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_machine = Computer()


def now() -> datetime:
    """The turn's time (UTC), the same at every replay; outside of a workflow the machine's."""
    loop = current_turn()
    return _EPOCH + timedelta(microseconds=_machine.now() if loop is None else loop.now)


def random_source() -> Random:
    """The process's own source of random numbers, the same at every replay."""
    return turn_for("random_source").chance


def new_uuid() -> UUID:
    """A fresh UUID (version 4), the same at every replay; outside of a workflow a new one each time."""
    loop = current_turn()
    if loop is None or loop.dead:
        return UUID(bytes=_machine.new_id(), version=4)
    place = loop.place(" uuid").encode()
    return UUID(bytes=blake2b(place, digest_size=16, key=loop.seed[:64]).digest(), version=4)


def process_id() -> str:
    """The id of the running process, as text."""
    return id_text(turn_for("process_id").process_id)


@overload
async def receive(name: str, type: type[T], *, timeout: Duration | None = None) -> T: ...
@overload
async def receive(name: str, type: Any = Any, *, timeout: Duration | None = None) -> Any: ...
async def receive(name: str, type: Any = Any, *, timeout: Duration | None = None) -> Any:
    """The next signal of that name, as ``type``, in the order in which signals were sent.

    ``Call[Quote]`` as type gives a call, for the code to answer; with any other type a call counts as answered when it
    is received. Raises TimeoutError if none comes within ``timeout`` seconds, PayloadError if a signal does not fit.
    """
    loop = turn_for("receive")
    return await loop.mailbox(check_name(name, "the name of the signal")).take(loop, type, in_seconds(timeout))


def tell(process: str, name: str, value: Any = None, *, key: str | None = None) -> None:
    """Send a signal to another process, by its id: it leaves with the commit of this turn, and is sent once.

    There is no answer: a process that has ended, or does not exist, does not hear it. ``key`` is a de-duplication key
    of the sender's own, unique per receiver. The context in which the code runs goes with it. Raises InvalidKey,
    PayloadError, WorkflowMisuse.
    """
    loop = turn_for("tell")
    target = id_bytes(process)
    check_name(name, "the name of the signal")
    if key is not None:
        check_key(key, "the key of the signal")
    raw = payload.encode(value, what=f"signal {name!r}")
    loop.send(OutgoingSignal(loop.place(" tell"), target, name, raw, key, loop.context))


def set_state(value: Any) -> None:
    """Show ``value`` as the process's state, in place of what was set before.

    Raises PayloadError; WorkflowMisuse in a machine, whose state are its fields.
    """
    raw = payload.encode(value, what="the state")
    loop = current_turn()
    if is_checkpoint(raw) or (loop is not None and loop.machine is not None):
        raise WorkflowMisuse("the state of a machine is its fields. Change them instead, or publish() a value.")
    if loop is not None and not loop.dead:
        loop.state = raw
