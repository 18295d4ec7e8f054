"""Text from SQLite, which keeps any bytes as text: texts that are not UTF-8 are read too, and marked as Garbled."""

from __future__ import annotations

import json as standard
import sqlite3
from typing import Any

from msgspec import json

from perdure.kernel.stored import Garbled


class Escaped(str):
    """An answer with bytes that are not UTF-8: each stands there as half of a surrogate pair."""


def escaped(raw: bytes) -> str:
    """The driver's text factory for an answer in which some text is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Escaped(raw.decode(errors="surrogateescape"))


def undecodable(error: sqlite3.OperationalError) -> bool:
    """Whether the driver could not read a text of an answer: that is its only error without a code of SQLite's."""
    return getattr(error, "sqlite_errorcode", None) is None


def listed(text: str) -> Any:
    """The JSON of a packed answer; texts in it that are not UTF-8 are Garbled."""
    return json.decode(text) if type(text) is str else _marked(standard.loads(text))


def _marked(value: Any) -> Any:
    if isinstance(value, list):
        return [_marked(one) for one in value]
    if isinstance(value, str) and not value.isascii():
        raw = value.encode(errors="surrogateescape")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return Garbled(raw.decode(errors="backslashreplace"))
    return value
