"""Starts and signals processes inside a database transaction that belongs to the caller.

If the caller's transaction commits, the process exists and is due, and workers are woken; if it is rolled back, nothing
has happened. Arguments, results, errors and limits are those of the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Generic, Protocol, TypeVar, overload

from msgspec.structs import replace

from perdure.authoring.start import Startable
from perdure.client import reply, validation
from perdure.client.client import Client, P, R
from perdure.client.existing import refuse_other_bytes
from perdure.client.handle import Handle
from perdure.client.validation import ProcessId
from perdure.errors import InvalidInput
from perdure.futures import at_once
from perdure.kernel.commit import Start
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.notice import addressed

HandleT = TypeVar("HandleT")


class Awaited(Protocol):
    """A connection whose calls are awaited: of asyncpg, or an async one of psycopg or SQLAlchemy."""

    def execute(self, statement: Any, /) -> Awaitable[Any]:
        """Run a statement."""


class Blocking(Protocol):
    """A connection whose calls block: of sqlite3, or an ordinary one of psycopg or SQLAlchemy."""

    def commit(self) -> None:
        """Commit the transaction."""


class InTransaction:
    """What ``engine.within(connection)`` returns for a connection whose calls are awaited.

    The methods of a handle that ``start`` returns work once the transaction has committed.
    """

    def __init__(self, client: Client, connection: Any) -> None:
        self._client = client
        self._door = client.store.backend.in_transaction(connection)
        self.blocking = self._door.blocking

    @overload
    async def start(self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    async def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> Handle[Any]: ...
    async def start(self, workflow: Startable[Any, Any] | str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Start a process that exists once the caller commits: see :meth:`Client.start`. Takes no delay."""
        flow, options = self._client.registry.startable(workflow, at_word=True)  # reads nothing: it must not wait
        process = self._client._fresh(flow, args, kwargs, options)
        if options.delay is not None:
            raise InvalidInput("a start in the caller's own transaction takes no delay. Let the workflow sleep first.")
        if options.debounce is not None:
            raise InvalidInput("a start in the caller's own transaction is not debounced. Start it after the commit.")
        if options.reply_to is not None:
            process = addressed(process, _receiver(options.reply_to))
        message = self._client._first_message(process, options)
        begun = await self._door.start(Start(process))
        refuse_other_bytes(process, begun)  # by the bytes of the input: the row may be that of this very transaction
        handle = self._client._handle(flow, process, begun)
        handle.known = False
        if message is not None:
            answer = await self._door.send(replace(message, process=handle.id_bytes))
            validation.check_room(answer)
            handle.sent = answer.verdict
        return handle

    async def signal(
        self,
        process: ProcessId,
        name: str,
        value: object = None,
        *,
        key: str | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
        context: Mapping[str, Any] | None = None,
    ) -> SendVerdict:
        """Send a signal that arrives once the caller commits: see :meth:`Handle.signal`."""
        id = validation.reference(process)
        signal = validation.signal(name, value, key, who, why, origin, context)
        answer = await self._door.send(Message(self._client.machine.new_id(), id, MessageType.SIGNAL, *signal))
        validation.check_sent(answer)
        return answer.verdict


def _receiver(address: Any) -> bytes:
    if reply.is_url(address):
        raise InvalidInput(
            "a start in the caller's own transaction cannot ask for a webhook. Do it before: "
            "reply_to=await engine.webhook(url)."
        )
    return reply.receiver_of(address)


class BlockingInTransaction(Generic[HandleT]):
    """The same for a connection whose calls block; usable on every thread on which the connection is."""

    def __init__(self, inside: InTransaction, hold: Callable[[Handle[Any]], HandleT]) -> None:
        self._inside = inside
        self._hold = hold

    @overload
    def start(self, workflow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> HandleT: ...
    @overload
    def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> HandleT: ...
    def start(self, workflow: Startable[Any, Any] | str, /, *args: Any, **kwargs: Any) -> HandleT:
        """Start a process that exists once the caller commits: see :meth:`Client.start`. Takes no delay."""
        return self._hold(at_once(self._inside.start(workflow, *args, **kwargs)))

    @wraps(InTransaction.signal)
    def signal(self, *args: Any, **kwargs: Any) -> SendVerdict:
        """Send a signal that arrives once the caller commits: see :meth:`Handle.signal`."""
        return at_once(self._inside.signal(*args, **kwargs))


def blocking_in_transaction(
    client: Client, connection: Any, hold: Callable[[Handle[Any]], HandleT]
) -> BlockingInTransaction[HandleT]:
    """Start and signal by ordinary calls; raises InvalidInput if the connection's own calls must be awaited."""
    inside = InTransaction(client, connection)
    if not inside.blocking:
        raise InvalidInput("the calls of this connection must be awaited. Use it with an Engine, on its event loop.")
    return BlockingInTransaction(inside, hold)
