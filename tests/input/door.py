"""What is refused at a door: the error's type, a text that says what to do, and nothing stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from typing import Any

import asyncpg
import pytest

from perdure.engine import Engine
from perdure.errors import PerdureError

LIMIT = 20.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""

DEEP = 70
"""More levels than a payload may have."""


def nested(levels: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED_VALUES: tuple[tuple[Any, str], ...] = (
    (object(), "Use JSON values, dataclasses"),
    ([print], "pass a reference"),
    (float("nan"), "Use None or a text instead."),
    ({"a": [float("-inf")]}, "Use None or a text instead."),
    ("half \ud800 a letter", "Decode its source with errors='replace'"),
    ([{"a": "\udfff"}], "Decode its source with errors='replace'"),
    (nested(DEEP), "Flatten it, or store it as a text."),
    ({1: "one"}, "Use str(key), or a list of pairs."),
    ({"a": {None: 1}}, "Use str(key), or a list of pairs."),
    (10**5000, "Store it as a text."),
)
"""Values that no payload can hold, each with what its refusal says to do."""


async def refused(engine: Engine, call: Awaitable[Any], kind: type[PerdureError], advice: str) -> None:
    """Await a call that must be refused with exactly that error and that advice, and leave no process behind."""
    before = await engine.count()
    with pytest.raises(PerdureError) as caught:
        await call
    text = str(caught.value)
    assert (type(caught.value), advice in text) == (kind, True), text
    assert await engine.count() == before


async def execute(url: str, *statements: str) -> None:
    """Run statements on the database itself, as its administrator could."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            for statement in statements:
                file.execute(statement)
        file.close()
        return
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()
