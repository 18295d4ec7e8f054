"""A line: the plainest output, which needs no library and so costs a worker nothing."""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def complain(text: str) -> None:
    """Say on the error output, as one line, what went wrong and what to do."""
    print(f"perdure: {' '.join(text.split())}", file=sys.stderr)


def show_line(value: Any) -> None:
    """Print a value as one line of JSON at once, for a program that reads along."""
    print(msgspec.json.encode(value).decode(), flush=True)
