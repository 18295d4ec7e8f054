"""A line: the plainest output, which needs no library and so costs a worker nothing."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from perdure.kernel.failure import UNSAFE, safe_text

_COMPLAINT_BYTES = 16 * 1024


def say(text: str) -> None:
    """Print what may hold anything that was stored, at once; what could steer a terminal is shown as its number."""
    print(escaped(text), flush=True)


def escaped(text: str) -> str:
    """The text with what could steer a terminal written as its number."""
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def safe_json(raw: bytes) -> str:
    """JSON as it may be printed: what could steer a terminal is written as its number, which means the same."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", raw.decode())


def complain(text: str) -> None:
    """Say on the error output, as one line, what went wrong and what to do."""
    print(f"perdure: {safe_text(' '.join(text.split()), _COMPLAINT_BYTES)}", file=sys.stderr)


def show_line(value: Any) -> None:
    """Print a value as one line of JSON at once, for a program that reads along."""
    print(safe_json(msgspec.json.encode(value)), flush=True)
