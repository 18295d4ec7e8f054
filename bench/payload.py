"""What the drivers hand in, take and return: small dicts, the same for every contestant, and long texts for W16.

Drivers run in the peers' own environments, so this file uses the standard library only.
"""

from __future__ import annotations

import base64
import random
from functools import cache
from typing import Any


def asked(steps: int) -> dict[str, Any]:
    """What a process is asked for: an order, and how many steps it takes."""
    return {"order": "A-17", "steps": steps}


def work(i: int) -> dict[str, Any]:
    """What a step is asked for."""
    return {"order": "A-17", "step": i}


def made(i: int) -> dict[str, Any]:
    """What a step returns."""
    return {"step": i, "ok": True}


def outcome(steps: int) -> dict[str, Any]:
    """What a process returns."""
    return {"order": "A-17", "made": steps}


@cache
def text(size: int) -> str:
    """A text of so many bytes that no database can make much shorter; the same in every run."""
    return base64.b64encode(random.Random(size).randbytes(size))[:size].decode()
