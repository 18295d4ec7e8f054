"""The ids of traces and spans: made from processes, runs and steps, so that every worker gives a thing the same one."""

from __future__ import annotations

import re
from hashlib import blake2b
from threading import local
from typing import Any, NamedTuple

TRACEPARENT = "traceparent"
"""The name under which W3C's trace context stands in the context of a request."""

_W3C = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII)


class TraceParent(NamedTuple):
    """A trace, the span in it from which something was asked for (0: none), and whether the trace is exported."""

    trace: int
    span: int
    sampled: bool

    @property
    def text(self) -> str:
        """It as W3C's ``traceparent``."""
        return f"00-{self.trace:032x}-{self.span:016x}-{'01' if self.sampled else '00'}"

    @classmethod
    def read(cls, text: Any) -> TraceParent | None:
        """What a ``traceparent`` says, or None if it is none: a stranger may have sent it."""
        found = _W3C.fullmatch(text) if isinstance(text, str) else None
        return None if found is None else cls(int(found[1], 16), int(found[2], 16), bool(int(found[3], 16) & 1))


def trace_of(process: bytes) -> int:
    """The trace of a process that was started from no trace."""
    return int.from_bytes(blake2b(process, digest_size=16, person=b"trace").digest(), "big") or 1


class SpanIds(local):
    """Gives OpenTelemetry's SDK the ids that the next span of this thread shall have: its trace and its own.

    Engines with one provider share it. A span that others make by the same tracer has the ``others``' ids.
    """

    def __init__(self, others: Any) -> None:
        self._others = others
        self._next: tuple[int, int] | None = None

    def expect(self, trace: int, span: int) -> None:
        """The next span has these ids."""
        self._next = trace, span

    def forget(self) -> None:
        """The span that was expected has not been made."""
        self._next = None

    def generate_trace_id(self) -> int:
        """See IdGenerator of the SDK, which asks for a trace before it asks for a span."""
        return int(self._others.generate_trace_id()) if self._next is None else self._next[0]

    def generate_span_id(self) -> int:
        """See IdGenerator of the SDK."""
        expected, self._next = self._next, None
        return int(self._others.generate_span_id()) if expected is None else expected[1]

    def is_trace_id_random(self) -> bool:
        """See IdGenerator of the SDK: a digest is as evenly spread as a random number."""
        return True

    def of(self, process: bytes, run: int, what: str) -> int:
        """The span of something in a run of a process."""
        digest = blake2b(f"{run}/{what}".encode(), digest_size=8, key=process, person=b"span").digest()
        return int.from_bytes(digest, "big") or 1

    def of_run(self, process: bytes, run: int) -> int:
        """The span of a run, whose children are those of its steps."""
        return self.of(process, run, "run")

    def of_attempt(self, process: bytes, run: int, name: str, place: str, number: int) -> int:
        """The span of an attempt of a step."""
        return self.of(process, run, f"attempt {number} of {name}:{place}")
