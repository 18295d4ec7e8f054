"""Attributes: what a process can be searched by, and what becomes of them when its own code sets some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import json

from perdure.kernel.payload import encode_attributes

Changes = Mapping[str, Any]
"""New values by name; None takes the name away."""


def missing(stored: bytes | None, changes: Changes) -> dict[str, Any]:
    """Those of the changes that the stored attributes do not show yet."""
    if stored is None:
        return {name: value for name, value in changes.items() if value is not None}
    shown = json.decode(stored)
    return {name: value for name, value in changes.items() if not _same(shown, name, value)}


def _same(shown: Mapping[str, Any], name: str, value: Any) -> bool:
    if value is None:
        return name not in shown
    there = shown.get(name)
    return isinstance(there, bool) is isinstance(value, bool) and bool(there == value)


def merged(stored: bytes | None, changes: Changes) -> bytes | None:
    """The attributes with the changes made; raises PayloadTooLarge."""
    after: dict[str, Any] = {} if stored is None else json.decode(stored)
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return encode_attributes(after) if after else None
