"""A connection: the client that a verb uses, opened with care for what an operator may not want to happen."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from getpass import getuser
from pathlib import Path

from perdure import settings
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.errors import StoreError

ORIGIN = "cli"


@asynccontextmanager
async def connected(url: str, *, registry: Registry | None = None, create: bool = False) -> AsyncIterator[Engine]:
    """A client on the store at ``url``. Without ``create`` nothing is created or migrated, only used."""
    if not create:
        _must_exist(url)
    if settings.SEAL in os.environ and "" not in sys.path:
        sys.path.append("")  # its module is looked for where the person stands, after all libraries
    async with Engine(url, registry=registry or Registry(), migrate=create) as engine:
        yield engine


def sqlite_path(url: str) -> Path | None:
    """The file that a SQLite URL names; None for other URLs and for databases in memory."""
    scheme, _, rest = url.partition(":///")
    return Path(rest) if scheme == "sqlite" and rest and not rest.startswith(":memory:") else None


def _must_exist(url: str) -> None:
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise StoreError(
            f"there is no database {path.resolve()}. Name yours with --url or PERDURE_URL; "
            "`perdure worker MODULE` makes a new one."
        )


def user() -> str:
    """The name of whoever sits at the terminal."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
