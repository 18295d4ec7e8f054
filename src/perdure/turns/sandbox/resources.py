"""Resources that workflow code may not name: open files and connections, random generators, the environment.

The audit hook refuses to open a file, a socket or a connection in a turn. But to use one that is open already causes no
audit event, nor does reading the environment. So these are found in the code, when the workflow is defined.
"""

from __future__ import annotations

import os
import sys
from types import BuiltinFunctionType, MethodType, ModuleType
from typing import Any

_OPEN = frozenset(
    {
        "_io.BufferedRandom", "_io.BufferedReader", "_io.BufferedWriter", "_io.FileIO", "_io.TextIOWrapper",
        "_socket.socket", "aiohttp.ClientSession", "asyncio.StreamReader", "asyncio.StreamWriter",
        "asyncpg.Connection", "asyncpg.Pool", "botocore.BaseClient", "http.HTTPConnection", "httpx.AsyncClient",
        "httpx.Client", "psycopg.BaseConnection", "psycopg.BaseCursor", "psycopg_pool.BasePool",
        "psycopg2.connection", "psycopg2.cursor", "pymongo.MongoClient", "redis.Redis", "requests.Session",
        "sqlalchemy.AsyncConnection", "sqlalchemy.AsyncEngine", "sqlalchemy.AsyncSession", "sqlalchemy.Connection",
        "sqlalchemy.Engine", "sqlalchemy.Session", "sqlalchemy.async_sessionmaker", "sqlalchemy.scoped_session",
        "sqlalchemy.sessionmaker", "sqlite3.Connection", "sqlite3.Cursor",
    }
)  # fmt: skip
"""Classes of what is open, or opens by itself: the package that defines each, and its name."""
_CHANCE = frozenset({"numpy.Generator", "numpy.RandomState", "random.Random"})
_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})

IO = "would do I/O again at every replay"
DIFFERS = "would differ at every replay"


def refused(name: str, value: Any) -> tuple[str, str] | None:
    """Why code may not name this, and what it is; None if it may."""
    if any(value is vars(os).get(one) for one in _ENVIRONMENT):
        return DIFFERS, f"os.{name}"
    if found := _refused(value, _CHANCE):
        return found[0], f"{name}, a {found[1]}"
    if isinstance(value, BuiltinFunctionType | MethodType):  # those of the module random itself are overridden
        found = _refused(value.__self__, _CHANCE - {"random.Random"})
    return None if found is None else (found[0], f"{name}, of a {found[1]}")


def _refused(value: Any, chance: frozenset[str]) -> tuple[str, str] | None:
    kinds = _kinds(value)
    if kinds & _OPEN and not _is_standard(value):
        return IO, f"{_shown(value)} that is open already"
    return (DIFFERS, f"{_shown(value)} that all processes share") if kinds & chance else None


def _kinds(value: Any) -> set[str]:
    """The classes of an object, each with its package; none for a class or a module."""
    if isinstance(value, type | ModuleType):
        return set()
    return {f"{(kind.__module__ or '').partition('.')[0]}.{kind.__name__}" for kind in type(value).__mro__}


def _is_standard(value: Any) -> bool:
    """Whether it is where a program prints: what workflow code prints is its own affair."""
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return any(value is one for one in streams)


def _shown(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__.partition('.')[0].lstrip('_')}.{kind.__name__}"
