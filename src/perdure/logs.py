"""The log: a logger for each subject, and a filter, so that no value from outside can forge a log line.

The loggers are ``perdure.worker``, ``perdure.process``, ``perdure.step``, ``perdure.breaker``, ``perdure.leader``,
``perdure.alert``, ``perdure.recovery``, ``perdure.store`` and ``perdure.quarantine``. A record about a process has the
attributes ``process_id``, ``process_kind`` and ``process_key``, one about a step also ``step`` and ``attempt``. One
about a breaker has ``breaker``, ``state`` and ``was``, one about a leader ``leader`` and ``term``, an alert ``alert``,
one of a rule also ``rule`` and ``status``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal
from weakref import WeakSet

from perdure.errors import CallRefused, PerdureError, Permanent, ProcessError, StepCrashed, StepError, Unavailable

_SEALED = "its text is sealed: perdure show"
_TELL_OF_OTHERS = (CallRefused, Permanent, ProcessError, StepCrashed, StepError, Unavailable)
"""Errors of Perdure whose text comes from the application's code."""

_CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"


class Confided(str):
    """A text that comes from the application's code, or tells of its values: wherever it is stored, it is sealed."""

    __slots__ = ()


class Tamed(logging.Filter):
    """Writes line feeds and other control characters of the values in a record as escapes.

    Keys, names and errors come from outside: a line feed in them could forge a log line, an escape control a terminal.
    A stack trace, which a message puts at its end, keeps its lines, each indented. While a sealed store is open, the
    texts of the application's errors are left out: they may hold what is sealed there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sealed: WeakSet[object] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with its values tamed."""
        if isinstance(record.args, tuple):
            stack = str(record.msg).endswith("\n%s")
            last = len(record.args) - 1
            record.args = tuple(
                self._told(one, lines=stack and place == last) if isinstance(one, str | BaseException) else one
                for place, one in enumerate(record.args)
            )
        if self.sealed and record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            record.exc_text = "".join(traceback.format_tb(error.__traceback__)) + self._told(error)
            record.exc_info = None
        return True

    def _told(self, value: str | BaseException, *, lines: bool = False) -> str:
        if self.sealed and isinstance(value, BaseException) and not _is_our_own(value):
            return f"{type(value).__name__} ({_SEALED})"
        if self.sealed and isinstance(value, Confided):
            return f"({_SEALED})"
        return tamed(value, lines=lines)


def _is_our_own(error: BaseException) -> bool:
    """Whether both the error's class and its text are Perdure's own, not the application's."""
    ours = isinstance(error, PerdureError) and type(error).__module__ == PerdureError.__module__
    return ours and not isinstance(error, _TELL_OF_OTHERS)


def tamed(value: str | BaseException, *, lines: bool = False) -> str:
    """A text without control characters; with ``lines`` its line feeds stay, and no line begins at the margin."""
    if lines:
        return "\n".join(f"    {tamed(line)}" for line in str(value).split("\n"))
    return re.sub(_CONTROL, lambda found: ascii(found[0])[1:-1], str(value))


FIELDS = (
    "process_id",
    "process_kind",
    "process_key",
    "step",
    "attempt",
    "breaker",
    "state",
    "was",
    "leader",
    "term",
    "alert",
)
"""The attributes that a record may have beside the usual ones of :mod:`logging`."""

_filter = Tamed()


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger of which no handler can harm what the engine does: a record is lost if one of them raises.

    Its error is shown as :mod:`logging` shows those that a handler has met with itself: on standard error.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """See :meth:`logging.Logger.log`."""
        kwargs["stacklevel"] = 1 + kwargs.get("stacklevel", 1)  # the record names the caller, not this line
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:
                with suppress(OSError):  # it may stand on the same full disk
                    traceback.print_exc()


def logger(
    subject: Literal[
        "worker", "process", "step", "breaker", "leader", "alert", "recovery", "store", "stream", "quarantine"
    ],
) -> Log:
    """The logger of a subject. A logger's filter does not apply to the loggers below it, so each of them gets it."""
    found = logging.getLogger(f"perdure.{subject}")
    found.addFilter(_filter)
    return Log(found, {})


def conceal(store: object) -> None:
    """From now on, and while this sealed store lives, the log leaves out what is sealed in it."""
    _filter.sealed.add(store)


def reveal(store: object) -> None:
    """Forget a sealed store that was closed."""
    _filter.sealed.discard(store)


# -- the log of workers and quarantine workers, which are programs of our own ------------------------------------------

LEVEL = "PERDURE_LOG_LEVEL"
FORMAT = "PERDURE_LOG_FORMAT"
"""Environment variables, so that every OS process that a worker starts logs as the worker does."""

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]


class JsonLines(logging.Formatter):
    """Each record as one JSON object in one line: time (UTC), level, logger, pid, message, fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if trace := record.exc_text or (record.exc_info and self.formatException(record.exc_info)):
            line["exception"] = trace
        return json.dumps(line, default=str)


def speak() -> None:
    """Log to standard error, with the level and format that the environment names (by default info and text)."""
    handler = logging.StreamHandler(sys.stderr)
    if os.environ.get(FORMAT) == "json":
        handler.setFormatter(JsonLines())
    else:
        text = "%(asctime)s %(levelname)-7s [%(process)d] %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(text, datefmt="%Y-%m-%d %H:%M:%S"))
    level = logging.getLevelNamesMapping().get(os.environ.get(LEVEL, "").upper(), logging.INFO)
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)
