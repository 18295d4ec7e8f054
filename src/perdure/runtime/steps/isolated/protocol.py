"""The protocol between a worker and its cells: messages as JSON, each after its length in four bytes.

Arguments, results and progress travel as the payloads that they are: no pickle, and nothing is encoded twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Raw, Struct, json

from perdure import limits
from perdure.authoring.attempt import Attempt
from perdure.kernel import payload
from perdure.kernel.failure import Failure
from perdure.kernel.stored import MALFORMED
from perdure.turns.ask import AskedStep

T = TypeVar("T")
FRAME_BYTES = 32 * 1024 * 1024
"""More than any message has, unless the limit of payloads was raised: a longer frame is no message."""


class Order(Struct, omit_defaults=True):
    """What the worker asks of a cell: one attempt of one step, with all that the step may know about it."""

    source: str
    key: str
    memory: int | None
    args: Raw
    step: str
    number: int
    idempotency_key: str
    process: str
    kind: str
    process_key: str | None
    timeout: float
    last_progress: Raw
    undoes: str | None = None
    context: str | None = None


class ChildReady(Struct, tag=True):
    """The cell has imported the application and waits for orders."""


class StepBegun(Struct, tag=True):
    """The cell has found the step and read the arguments: the step's time begins."""


class StepBeat(Struct, tag=True):
    """A heartbeat of the step, with what it has reported last."""

    progress: Raw


class StepDone(Struct, tag=True):
    """The step has answered."""

    result: Raw


class StepRaised(Struct, tag=True):
    """The step has raised. ``retries``: its policy allows another attempt; ``spent``: out of memory, the cell ends.

    ``classes`` are the names of the error's classes, the nearest first.
    """

    failure: Failure
    retries: bool
    spent: bool = False
    classes: tuple[str, ...] = ()


StepEnded = StepDone | StepRaised
Said = ChildReady | StepBegun | StepBeat | StepDone | StepRaised

_encode = json.Encoder().encode
_order: Callable[[bytes], Order] = json.Decoder(Order).decode
_said: Callable[[bytes], Said] = json.Decoder(ChildReady | StepBegun | StepBeat | StepDone | StepRaised).decode


def order(step: AskedStep, args: bytes, attempt: Attempt, timeout: float) -> bytes:
    """The message that orders an attempt, which may take ``timeout`` seconds."""
    confined = step.hard
    if confined is None:
        raise TypeError(f"{step} is not a hard step")
    return framed(
        Order(
            source=confined.source,
            key=confined.key,
            memory=confined.memory,
            args=Raw(args),
            step=step.name,
            number=attempt.number,
            idempotency_key=attempt.idempotency_key,
            process=attempt.process,
            kind=attempt.kind,
            process_key=attempt.key,
            timeout=timeout,
            last_progress=Raw(payload.encode(attempt.last_progress)),
            undoes=attempt.undoes,
            context=attempt._context,
        )
    )


def framed(message: Order | Said) -> bytes:
    """A message as it goes over the channel."""
    body = _encode(message)
    return len(body).to_bytes(4, "big") + body


def read_order(body: bytes) -> Order:
    """The order in a frame; raises ValueError if it is none of ours."""
    return _read(_order, body)


def read_said(body: bytes) -> Said:
    """A cell's message in a frame; raises ValueError if it is none of ours: other code has written there."""
    return _read(_said, body)


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except MALFORMED as error:
        raise ValueError(f"no message: {error}") from error


class Frames:
    """A buffer of received bytes, from which whole messages are taken."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, received: bytes) -> None:
        """Add what has come in."""
        self._bytes += received

    def take(self) -> bytes | None:
        """The next whole message, or None; raises ValueError if there can be none."""
        if len(self._bytes) < 4:
            return None
        length = int.from_bytes(self._bytes[:4], "big")
        if length > max(FRAME_BYTES, 2 * limits.PAYLOAD_BYTES):
            raise ValueError(f"a message of {length:,} bytes")
        if len(self._bytes) < 4 + length:
            return None
        body = bytes(self._bytes[4 : 4 + length])
        del self._bytes[: 4 + length]
        return body
