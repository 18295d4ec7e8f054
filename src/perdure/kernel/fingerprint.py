"""A fingerprint: what failures have in common that have one cause, so that ten thousand of them are one line."""

from __future__ import annotations

import re
from hashlib import blake2b

from msgspec import Struct

from perdure.kernel.failure import Failure
from perdure.kernel.process import Process

TEXT = 200
"""How many characters of a message count; what differs only behind them has one fingerprint."""
_VARIES = (
    (re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE), "…"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|«[^»]*»|“[^”]*”"), "'…'"),
    (re.compile(r"\b0x[0-9a-f]+\b|(?:(?<!\w)[-+])?\b(?=[a-f]*[0-9])[0-9a-f]{8,}\b", re.IGNORECASE), "…"),
    (re.compile(r"(?:(?<!\w)[-+])?\d+(?:[.,:]\d+)*"), "…"),
    (re.compile(r"\s+"), " "),
)
"""What differs from one failure to the next although the cause is one: ids, quoted values, numbers, white space."""


class Cause(Struct, frozen=True):
    """What a failure is filed under: the process's ``kind`` and ``version``, and three things of its error.

    These are the ``step`` that failed, or an empty text if the workflow's own code did, the ``type`` of the error, and
    its ``message`` without what varies.
    """

    kind: str
    version: str
    step: str
    type: str
    message: str

    @property
    def fingerprint(self) -> str:
        """A short name for it, the same in every program: 12 hexadecimal digits."""
        text = f"{self.kind}\0{self.version}\0{self.step}\0{self.type}\0{self.message}"
        return blake2b(text.encode(errors="backslashreplace"), digest_size=6).hexdigest()


def cause_of(process: Process, failure: Failure) -> Cause:
    """What this failure of the process is filed under."""
    step, type, message = failure.origin
    return Cause(str(process.kind), str(process.code), step, type, without_what_varies(message))


def without_what_varies(message: str) -> str:
    """The message with its ids, numbers and quoted values left out, cut to a length."""
    for pattern, instead in _VARIES:
        message = pattern.sub(instead, message)
    return message.strip()[:TEXT]
