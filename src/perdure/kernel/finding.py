"""A finding: something a check saw that must not be, or that a person should know."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True, gc=False):
    """One finding: the law or check it belongs to, the process (or worker) it concerns, and what was seen."""

    law: str
    subject: bytes
    text: str
