"""The wall around a turn."""

from __future__ import annotations

from random import Random


def build() -> None:
    """Build it once."""


def chance(seed: bytes) -> Random:
    """A source of chance that gives the same numbers for the same seed."""
    return Random(seed)
