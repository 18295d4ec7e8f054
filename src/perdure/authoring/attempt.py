"""An attempt: what a running step may know about itself, and how it reports that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from perdure.errors import DefinitionError
from perdure.kernel import payload
from perdure.kernel.context import read
from perdure.kernel.names import check_name, id_text
from perdure.kernel.process import Process
from perdure.limits import ATTRIBUTES_BYTES

_NOBODY = Process(id=bytes(16), kind="", key=None, input=b"[]")


class Attempt:
    """One execution of a step. ``number`` counts from 1; every attempt has the same ``idempotency_key``.

    ``last_progress`` is the value that an earlier attempt, or this one, reported last. In an undo, ``undoes`` is the
    idempotency key of the step to undo: with it the undo can ask the other system how that step ended.
    """

    __slots__ = (
        "_connection",
        "_context",
        "_engine",
        "_extend",
        "_left",
        "_loop",
        "_process",
        "_show",
        "idempotency_key",
        "last_progress",
        "number",
        "step",
        "undoes",
    )

    def __init__(
        self,
        process: Process = _NOBODY,
        step: str = "",
        number: int = 1,
        idempotency_key: str = "",
        extend: Callable[[], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        left: Callable[[], float] | None = None,
        last_progress: Any = None,
        undoes: str | None = None,
        connection: Any = None,
        show: Callable[[str, bytes], None] | None = None,
        engine: Any = None,
        context: str | None = None,
    ) -> None:
        self._process = process
        self.step = step
        self.number = number
        self.idempotency_key = idempotency_key or f"{id_text(process.id)}/{process.run}/{step or 'step'}:1"
        self._extend = extend
        self._loop = loop
        self._left = left
        self.last_progress = last_progress
        self.undoes = undoes
        self._connection = connection
        self._show = show
        self._engine = engine
        self._context = context

    @property
    def process(self) -> str:
        """The id of the process, as text."""
        return id_text(self._process.id)

    @property
    def kind(self) -> str:
        """The name of the workflow."""
        return self._process.kind

    @property
    def key(self) -> str | None:
        """The process's key, given at its start."""
        return self._process.key

    @property
    def context(self) -> dict[str, Any]:
        """The context that came with the request for which the step runs; empty if none did.

        Raises UnreadablePayload if it was sealed and cannot be opened here.
        """
        return read(self._context)

    @property
    def connection(self) -> Any:
        """The open transaction of a step with ``transaction=True``: its result is committed with what is written there.

        On PostgreSQL it is a connection of asyncpg, on SQLite one of sqlite3. The step only writes: its return commits
        and its error rolls back. Raises DefinitionError where there is none.
        """
        if self._connection is None:
            raise DefinitionError(
                "this attempt has no transaction. Write @step(transaction=True) and call the step from a workflow; "
                "in a test call a function that takes the connection, and let the step hand it over."
            )
        return self._connection

    @property
    def engine(self) -> Any:
        """The engine whose worker runs this attempt, for a step that starts, signals or looks at other processes.

        Give what it starts a key, since a step may run twice. A type checker checks what you do with it if you say what
        it is: ``engine: Engine = attempt().engine``. Raises DefinitionError in a hard step and in unit tests.
        """
        if self._engine is None:
            raise DefinitionError(
                "this attempt has no engine: a hard step runs in an OS process of its own, and a unit test in none. "
                "Open a client there: `async with Engine(url) as engine`."
            )
        return self._engine

    def remaining(self) -> float:
        """Seconds until this attempt's deadline; infinite if it has none."""
        return float("inf") if self._left is None else self._left()

    def heartbeat(self, progress: Any = None) -> None:
        """Report that the step is alive, which restarts its timeout, and optionally how far it has come.

        Callable from every thread. ``progress`` is any payload; raises PayloadError if it cannot be one.
        """
        if progress is not None:
            raw = payload.encode(progress, limit=ATTRIBUTES_BYTES, what="the progress")
            self.last_progress = payload.decode(raw)
        if self._extend is None:
            return
        if self._loop is None or asyncio._get_running_loop() is self._loop:
            self._extend()
        else:
            self._loop.call_soon_threadsafe(self._extend)

    def publish(self, name: str, value: Any) -> None:
        """Append ``value`` to what the process publishes under ``name``, while the step runs on; from every thread.

        It is written soon, with the process's next commit. What an attempt has published stays, even if the attempt
        then fails: the next one publishes again. Raises InvalidKey, PayloadError (PayloadTooLarge: await something, so
        that the values can be written), and DefinitionError in a hard or a queued step.
        """
        check_name(name, "the name of the value")
        raw = payload.encode(value, what=f"the published value {name!r}")
        if self._show is not None:
            self._show(name, raw)


ATTEMPT: ContextVar[Callable[[], Attempt]] = ContextVar("perdure attempt", default=Attempt)
"""Gives the attempt that runs in this context; it is made only when a step asks for it."""


def attempt() -> Attempt:
    """The attempt that is running; outside of a step a neutral one, so that unit tests work."""
    return ATTEMPT.get()()
