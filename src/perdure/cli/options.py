"""What several commands share: their options, how a process is named, and how the database is opened."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from getpass import getuser
from typing import Annotated, Any

from cyclopts import Parameter

from perdure import settings
from perdure.authoring.registry import Registry
from perdure.client.view import instant
from perdure.engine import Engine
from perdure.errors import InvalidInput, InvalidKey, PayloadError, ProcessNotFound
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.payload import decode
from perdure.kernel.process import Process
from perdure.store.base import Search

DEFAULT_URL = settings.DEFAULT_URL

Url = Annotated[
    str,
    Parameter(
        name="--url",
        env_var=settings.URL,
        help="The database: sqlite:///file.db or postgresql://user@host/database.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, for programs.")]
Utc = Annotated[bool, Parameter(name="--utc", negative="", help="Show times in UTC, not in the local time zone.")]
Switch = Annotated[bool, Parameter(negative="")]
Attributes = Annotated[list[str] | None, Parameter(name="--attribute", negative="")]
SkipDays = Annotated[list[str] | None, Parameter(name="--skip-day", negative="")]
Who = Annotated[str, Parameter(name="--who", help="Who gives the command; recorded. Default: your user name.")]
Why = Annotated[str, Parameter(name="--why", help="Why; recorded in the history.")]
ProcessArguments = Annotated[
    list[str],
    Parameter(
        name="process", help="Processes, each by its id, its key, or kind:key.", negative="", consume_multiple=True
    ),
]
ProcessArgument = Annotated[str, Parameter(name="process", help="A process, by its id, its key, or kind:key.")]


_SEVERAL = 5


async def process_named(engine: Engine, text: str) -> Process:
    """The process with that id, that key, or that ``kind:key``; raises ProcessNotFound, or InvalidKey if several."""
    id = _id(text)
    found = [] if id is None else await engine.store.search(Search(ids=(id,)))
    if not found:  # a key may look like an id
        found = await engine.store.search(Search(key=text, limit=_SEVERAL))
    kind, colon, key = text.partition(":")
    if colon and not found:
        found = await engine.store.search(Search(kind=kind, key=key, limit=_SEVERAL))
    if not found:
        raise ProcessNotFound(f"no process has the id or key {text!r:.200}; `perdure ps` lists what there is")
    if len(found) > 1:
        choice = ", ".join(f"{process.kind}:{process.key}" for process in found)
        raise InvalidKey(f"the key {text!r:.200} belongs to several processes; name one of {choice}")
    return found[0]


def reference_to(process: Process) -> str:
    """How to name a process so that people recognise it: kind and key, or kind and id."""
    return f"{process.kind} {process.key or id_text(process.id)}"


def _id(text: str) -> bytes | None:
    try:
        return id_bytes(text)
    except InvalidKey:
        return None


def plain(text: str) -> Any:
    """JSON if the text is JSON, otherwise the text itself."""
    try:
        return decode(typed(text))
    except PayloadError:
        return text


def typed(text: str) -> bytes:
    """A text of the command line as bytes; raises InvalidInput if it is not UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r:.80} holds bytes that are not UTF-8; set the terminal to UTF-8") from None


def attributes_of(texts: list[str] | None) -> dict[str, Any]:
    """Search attributes from ``name=value``; each value is read as JSON, or else as text. Raises InvalidInput."""
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not equals or not name:
            raise InvalidInput(f"{name + equals + value!r:.80} is not an attribute; write name=value")
    return {name: plain(value) for name, _, value in pairs}


async def present(engine: Engine) -> datetime:
    """The time of the store: every distance that is shown is counted from it."""
    return instant(await engine.store.now())


ORIGIN = "cli"


@asynccontextmanager
async def connected(url: str, *, registry: Registry | None = None, create: bool = False) -> AsyncIterator[Engine]:
    """A client on the store at ``url``. Without ``create`` nothing is created or migrated, only used."""
    if settings.SEAL in os.environ and "" not in sys.path:
        sys.path.append("")  # its module is looked for where the person stands, after all libraries
    async with Engine(url, registry=registry or Registry(), migrate=create) as engine:
        yield engine


def user() -> str:
    """The name of the user at the terminal."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"
