"""Step transactions on PostgreSQL: a few connections lent to steps, one for each, for the time of one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import asyncpg

from perdure import limits
from perdure.clock import Computer
from perdure.errors import Permanent, StoreError, StoreUnavailable
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.store.postgres.backoff import Backoff
from perdure.store.postgres.connection import plain
from perdure.store.postgres.error import translated
from perdure.store.postgres.schema import queries
from perdure.store.postgres.url import Address, address_of
from perdure.store.step_transaction import StepTransactionAnswer, StepTransactionVerdict

T = TypeVar("T")

TROUBLES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver raises when a server refuses, is away, or has closed the connection unnoticed."""


LOST = (
    "the connection was lost while the step ran, or was silent for longer than its timeout; the step is tried again "
    "as its policy says"
)


class PostgresStepTransactions:
    """Lends asyncpg connections to steps, at most ``limits.TRANSACTION_CONNECTIONS``; further steps wait in order."""

    blocking = False

    def __init__(self, url: str, machine: Computer) -> None:
        self.address = address_of(url)
        self.machine = machine
        self.sql = queries(self.address.schema)
        self.closed = False
        self._pool: Any = None

    async def take(self) -> PostgresStepTransaction:
        """A new transaction, as soon as there is a connection for it; raises StoreUnavailable."""
        if self.closed:
            raise StoreUnavailable("the engine is closed; open it again")
        if self._pool is None:
            # A step that keeps its connection after its end finds it closed: another step may have it by then.
            self._pool = asyncpg.create_pool(
                connect=self._connect,
                min_size=0,
                max_size=limits.TRANSACTION_CONNECTIONS,
                reset=_as_it_is if self.address.pooled else self._reset,
            )
        try:
            await self._pool
            return PostgresStepTransaction(self, await self._pool.acquire())
        except TROUBLES as error:
            raise _unavailable(error, self.address) from error

    async def _connect(self, *given: Any, **settings: Any) -> Any:
        return await plain(self.address, "steps", **settings)

    async def _reset(self, connection: Any) -> None:
        """Reset as the driver would, but with names that the step's own search path cannot redirect."""
        await connection.execute(self.sql["reset_session"])

    async def close(self) -> None:
        """Let go of every connection; one that is still lent is cut, so that the server rolls back."""
        self.closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), limits.TRANSACTION_GRACE_SECONDS)
            except TimeoutError:
                pool.terminate()

    async def give_back(self, connection: Any) -> None:
        """Give the connection to the next step; if it cannot be reset it is dropped, and that step gets a new one."""
        if self._pool is not None:
            with contextlib.suppress(*TROUBLES):
                await self._pool.release(connection, timeout=limits.SILENT_CONNECTION_SECONDS)


class PostgresStepTransaction:
    """What each method promises stands in ``store/step_transaction.py``."""

    def __init__(self, step_transactions: PostgresStepTransactions, connection: Any) -> None:
        self.connection = connection
        self._step_transactions = step_transactions
        self._loop = asyncio.get_running_loop()
        self._transaction: Any = None
        self._returned = False
        self._abandoned = False
        self._cutting: asyncio.TimerHandle | None = None

    async def begin(self, process: bytes, id: bytes, patience: float) -> bool:
        """Open the transaction, unless the result with that ``id`` is there already: then the answer is False."""
        milliseconds = str(max(1, min(int(patience * 1000), 2**31 - 1)))
        pooled = self._step_transactions.address.pooled
        try:
            given = id_text(id), id_text(process), milliseconds, pooled
            known, _ = await self._heard(self.connection.fetchrow(self._sql["result_is_known"], *given))
            if known:
                return False
            self._transaction = self.connection.transaction()
            await self._heard(self._transaction.start())
        except TROUBLES as error:
            raise _unavailable(error, self._step_transactions.address) from error
        return True

    @property
    def _sql(self) -> Mapping[str, str]:
        return self._step_transactions.sql

    def mark_returned(self) -> bool:
        """Note that the step has returned: its transaction cannot be abandoned any more. False if it has been."""
        self._returned = not self._abandoned
        return self._returned

    def abandon(self) -> bool:
        """Roll back when the step ends. If it does not end when it is cancelled, its connection is cut soon after."""
        if self._returned:
            return False
        if not self._abandoned:
            self._abandoned = True
            self._cutting = self._loop.call_later(limits.TRANSACTION_GRACE_SECONDS, self._cut)
        return True

    async def keep(self, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        """Record the result and commit, if the process still has that owner and token; never cancelled."""
        self._check()
        given = id_text(message.id), id_text(message.process), id_text(owner), token
        content = message.name, message.payload, message.sender
        row = await self._heard(self.connection.fetchrow(self._sql["keep_result"], *given, *content))
        answer = StepTransactionAnswer(StepTransactionVerdict(row["verdict"]), row["number"] or 0, row["at"])
        if answer.verdict is not StepTransactionVerdict.KEPT:
            return answer
        try:
            # If we die before or in this COMMIT, all of it is there or nothing: the next worker looks for the message.
            await self._commit()
        except Exception:
            if not await self._looked(message):
                raise
            return StepTransactionAnswer(StepTransactionVerdict.KNOWN)
        return answer

    def _check(self) -> None:
        """Raise if the step's transaction is not open any more."""
        try:
            if self.connection.is_in_transaction():
                return
        except asyncpg.InterfaceError:
            raise StoreUnavailable(LOST) from None
        self._transaction = None
        raise Permanent(
            "the step has ended its transaction itself: its writes may be stored, without its result. "
            "Leave COMMIT and ROLLBACK to Perdure: return to commit, raise to roll back."
        )

    async def _commit(self) -> None:
        await self._heard(self._transaction.commit())

    async def _looked(self, message: Message) -> bool:
        """Whether a COMMIT without an answer was done: asked under the row's lock, which it keeps until it ends."""
        self._cut()
        backoff = Backoff(self._step_transactions.machine)
        while True:
            try:
                other = await self._step_transactions.take()
                try:
                    return await other.found(message)
                finally:
                    await other.end()
            except (StoreError, *TROUBLES):
                if self._step_transactions.closed:
                    raise  # the worker that goes on with the process looks for the message too
                await asyncio.sleep(backoff.failed())

    async def found(self, message: Message) -> bool:
        """Whether the message is there, once no other transaction has its process locked."""
        self._transaction = self.connection.transaction()
        await self._heard(self._transaction.start())
        await self._heard(self.connection.execute(self._sql["lock_for_result"], id_text(message.process)))
        known = id_text(message.id), id_text(message.process), "0", True
        return bool((await self._heard(self.connection.fetchrow(self._sql["result_is_known"], *known)))[0])

    async def end(self) -> None:
        """Roll back what is open and give the connection back."""
        if self._cutting is not None:
            self._cutting.cancel()
        try:
            if self._transaction is not None and self.connection.is_in_transaction():
                await self._heard(self._transaction.rollback())
        except Exception:
            self._cut()
        await self._step_transactions.give_back(self.connection)

    async def _heard(self, statement: Awaitable[T]) -> T:
        """The answer to a statement of ours; if the server is silent for too long, the connection is cut (rule 7)."""
        silent = self._loop.call_later(limits.SILENT_CONNECTION_SECONDS, self._cut)
        try:
            return await statement
        except asyncpg.InternalClientError as error:  # the server closed it, and the driver has not noticed yet
            raise StoreUnavailable(LOST) from error
        finally:
            silent.cancel()

    def _cut(self) -> None:
        """Abort the connection: the server rolls back what is open."""
        with contextlib.suppress(asyncpg.InterfaceError):  # it was cut before
            self.connection.terminate()


def _unavailable(error: BaseException, address: Address) -> StoreUnavailable:
    """The error of a step that cannot begin: whatever the reason, the step is tried again until that is removed."""
    told = translated(error, address.shown)
    return told if isinstance(told, StoreUnavailable) else StoreUnavailable(str(told))


async def _as_it_is(connection: Any) -> None:
    """Reset nothing behind a pooler: the session there may be anybody's."""
