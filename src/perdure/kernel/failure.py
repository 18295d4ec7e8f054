"""A failure: an error as it is recorded, with texts cut to their limits and safe to show."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.errors import PerdureError, Permanent, StepError, StepOutcomeUnknown, StepTimeout
from perdure.kernel.declared_error import NOTHING, Declared, name_among, rebuilt
from perdure.kernel.stored import reader
from perdure.limits import ERROR_TEXT_BYTES, NAME_BYTES, STACK_TEXT_BYTES

OVER_DEADLINE, MARKED_FAILED = "DeadlineExceeded", "GivenUp"
"""The types of the failures of processes that a deadline, or a person, has ended as failed."""

_CAUSES = 5
_CUT = "… (cut)"
# Control characters but line feed and tab, line separators, and marks that turn the direction of text.
_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something failed: ``type`` is the name of the error's class, ``message`` its text (at most 4 KiB).

    ``attempts`` counts executions. ``trace`` is the end of the stack trace (at most 8 KiB). ``undone`` are the steps
    that the process has undone, in that order (``charge:1``: name and place); ``owed`` are those that it has not.
    ``declared`` names the class that a step has declared for such an error. ``unknown`` says that a step
    which runs at most once may have been done. ``step`` is the step whose error has ended the process, ``cause`` the
    name of that error's class. ``worker`` is the name of the worker on which it failed. No text says which command
    helps: that depends on the status that the process has by the time a person reads the text.
    """

    type: str
    message: str
    attempts: int = 1
    timeout: bool = False
    permanent: bool = False
    trace: str = ""
    undone: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()
    declared: str = ""
    unknown: bool = False
    step: str = ""
    cause: str = ""
    worker: str = ""

    @classmethod
    def of(cls, error: BaseException, attempts: int = 1, raises: Declared = NOTHING) -> Failure:
        """The failure that records ``error``, of a step that ``raises`` these classes.

        Never raises, whatever the error's own methods do.
        """
        return cls(
            type=safe_text(error.__class__.__name__, NAME_BYTES),
            message=safe_text(_message(error), ERROR_TEXT_BYTES),
            attempts=attempts,
            timeout=isinstance(error, TimeoutError),
            permanent=isinstance(error, Permanent),
            trace=safe_text(_trace(error), STACK_TEXT_BYTES, keep_end=True),
            declared=name_among(error, raises) if raises else "",
            unknown=isinstance(error, StepOutcomeUnknown),
            step=_said_by(error, "step"),
            cause=_said_by(error, "type"),
            worker=_worker_of(error),
        )

    def on(self, worker: str) -> Failure:
        """The failure with the worker on which it failed, unless that is known already."""
        return self if self.worker else replace(self, worker=worker)

    def encode(self) -> bytes:
        """The payload that records this failure."""
        return _encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Failure:
        """The failure that a payload records; raises PayloadError if it records none."""
        return _decode(raw)

    @classmethod
    def shown(cls, raw: bytes) -> Failure:
        """The same for people: if the payload cannot be read, a failure that says why."""
        try:
            return cls.decode(raw)
        except PerdureError as why:
            return cls(type=type(why).__name__, message=str(why))

    @property
    def origin(self) -> tuple[str, str, str]:
        """The step that failed, or an empty text, the class of the error, and the error's own message."""
        if not self.step:
            return "", self.type, self.message
        _, _, own = self.message.partition(f"{self.cause}: ")
        return self.step, self.cause or self.type, own or self.message

    @property
    def from_outside(self) -> bool:
        """Whether a deadline or a person has ended the process: an error of that name from its code has a trace."""
        return self.type in (OVER_DEADLINE, MARKED_FAILED) and not self.trace

    def as_step_error(self, step: str, raises: Declared = NOTHING) -> StepError:
        """The error that the workflow gets for the failed step: of the recorded class, if the step declares it."""
        kind: type[StepError] = StepTimeout if self.timeout else StepError
        if self.unknown:
            kind = StepOutcomeUnknown
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        said = f"{self.type}: {self.message}" if self.message else self.type
        text = f"step {step!r} failed, tried {times}: {said}"
        own = raises.get(self.declared)
        error = (kind if own is None else rebuilt(kind, own))(
            text if own is None else self.message or self.type,
            step=step,
            type=self.type,
            attempts=self.attempts,
            failure=self,
        )
        if own is not None:
            error.add_note(text)
        return error


UNKNOWN = Failure(
    StepOutcomeUnknown.__name__,
    "it is not known whether it was done: its worker died, or lost the process, before the step had answered",
    unknown=True,
)
"""Of a step that runs at most once, has begun, and has no answer."""

_encode = msgspec.json.Encoder().encode
_decode = reader(Failure, "a recorded failure")


def answered(error: BaseException) -> BaseException:
    """The error that counts if a step raised ``error``: one that would end the worker becomes an ordinary error."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return RuntimeError(f"the step raised {type(error).__name__}: a step may not end its worker")
    return error


@cache
def unsafe() -> re.Pattern[str]:
    """Finds a character that could steer a terminal; compiled when it is first wanted."""
    return re.compile(_UNSAFE)


def escaped(text: str) -> str:
    """The text with every character that could steer a terminal written as its number."""
    return unsafe().sub(lambda found: ascii(found[0])[1:-1], text)


def safe_text(text: str, limit: int, *, keep_end: bool = False) -> str:
    """``text`` with control characters escaped, in at most ``limit`` bytes of UTF-8."""
    cut = len(text) > limit
    text = text[-limit:] if keep_end else text[:limit]
    text = escaped(text)
    raw = text.encode()
    if len(raw) <= limit and not cut:
        return text
    room = limit - len(_CUT.encode())
    if keep_end:
        return _CUT + raw[-room:].decode(errors="ignore")
    return raw[:room].decode(errors="ignore") + _CUT


def _said_by(error: BaseException, name: str) -> str:
    """What the error of a failed step says of itself by that attribute, if it is a text."""
    said = _of(error, name)
    return safe_text(said, NAME_BYTES) if isinstance(said, str) else ""


def _worker_of(error: BaseException) -> str:
    """The worker on which the step has failed whose error this is."""
    failure = _of(error, "failure")
    return failure.worker if isinstance(failure, Failure) else ""


def _of(error: BaseException, name: str) -> object:
    """An attribute of a step's error, which the application may have made: of any type, or a property that raises."""
    try:
        return getattr(error, name) if isinstance(error, StepError) else None
    except Exception:
        return None


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, BaseExceptionGroup):
            return f"{error}: {'; '.join(_leaves(error))}"
        return str(error)
    except Exception as second:
        return f"(its text cannot be had: {second.__class__.__name__})"


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[str]:
    """The first few errors in a group and in the groups inside it."""
    waiting, told = list(group.exceptions), 0
    while waiting and told < _CAUSES:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting[:0] = error.exceptions
            continue
        told += 1
        yield f"{type(error).__name__}: {_message(error)}"
    if waiting:
        yield f"and {len(waiting)} more"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as second:
        return f"(no stack trace: {second.__class__.__name__})"
