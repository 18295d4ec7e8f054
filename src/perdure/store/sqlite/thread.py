"""A database thread: one thread with one connection, and a queue in which urgent work goes first.

While it has work, the interpreter's lock (GIL) changes threads more quickly. A thread that wants this lock waits 5 ms
before it asks the holder to release it, and begins to wait again whenever the holder releases it for a moment, as an
event loop does in each of its rounds. A transaction wants the lock about ten times. So beside a busy event loop it
would take 50 ms or starve, while it has the database's write lock for which other workers wait; and every batch would
begin 5 ms late. Therefore the switch interval is shorter than a round from when work is handed over until it is done,
and then restored.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from perdure.errors import StoreError, StoreUnavailable
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.error import lost, translated

SWITCH_SECONDS = 0.00005
CUT_SECONDS = 0.05


class SwitchInterval:
    """A context in which the interval is short; several threads may be in it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual = 0.0

    def begin(self) -> None:
        """Shorten the interval; each call needs one of :meth:`end`."""
        with self._lock:
            if self._inside == 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SWITCH_SECONDS))
            self._inside += 1

    def end(self) -> None:
        """Restore the interval, unless another thread still needs it short."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._usual)

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


switch_interval = SwitchInterval()
"""The only one in this program: the interval belongs to the interpreter."""


T = TypeVar("T")
DatabaseWork = Callable[[Connection], T]


class _Piece(NamedTuple):
    """A piece of work that waits for its turn, and the future that gets its result; a ``write`` is done in any case."""

    work: DatabaseWork[Any]
    future: asyncio.Future[Any]
    write: bool

    @property
    def abandoned(self) -> bool:
        """Whether it only reads, and nobody awaits it any more."""
        return not self.write and self.future.done()


class DatabaseThread:
    """Does work on one connection, one piece at a time; a connection that broke is replaced before the next piece.

    ``check`` is called before each piece, and raises if the database must not be used now.
    """

    def __init__(self, name: str, connect: Callable[[], Connection], check: Callable[[], None]) -> None:
        self._name = name
        self._connect = connect
        self._check = check
        self._urgent: deque[_Piece] = deque()
        self._usual: deque[_Piece] = deque()
        self._under_way: _Piece | None = None
        self._changing = threading.Lock()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None
        self.is_open = False

    def open(self) -> None:
        """Take work from now on. The first piece of work makes the thread and its connection."""
        self.is_open = True

    async def run(self, work: DatabaseWork[T], *, urgent: bool = False, write: bool = True) -> T:
        """Do work on the thread; SQLite's errors become the store's. Abandoning the wait does not stop the work.

        Work that does not ``write`` does not begin if nobody awaits it any more.
        """
        if not self.is_open:
            raise StoreError("the store is closed; open it first")
        if self._thread is None:
            self._thread = self._started()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._usual).append(_Piece(work, future, write))
        switch_interval.begin()
        self._wake.put(True)
        return await future

    @property
    def has_more(self) -> bool:
        """Whether other work waits while one piece is being done."""
        return bool(self._urgent or self._usual)

    def _started(self) -> threading.Thread:
        """Start the thread; raise StoreUnavailable if the system refuses it: the next use tries again."""
        thread = threading.Thread(target=self._live, name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise StoreUnavailable(
                f"the system refuses the thread of the store's {self._name!r} ({error or type(error).__name__}); raise "
                "the limits on threads and memory. Perdure tries again by itself"
            ) from error
        return thread

    async def close(self) -> None:
        """Finish what is queued, then end the thread and its connection; a read that nobody awaits is cut short."""
        thread, self._thread = self._thread, None
        self.is_open = False
        if thread is None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self._wake.put(False)
        while not self._ended.done():
            self._cut_short()  # again and again: it may be between two statements
            await asyncio.wait([self._ended], timeout=CUT_SECONDS)
        thread.join()

    def _live(self) -> None:
        while self._wake.get():
            queue = self._urgent if self._urgent else self._usual
            piece = queue.popleft()
            result: Any = None
            failure: BaseException | None = None
            self._begin(piece)
            try:
                if not piece.abandoned:
                    result = self._do(piece.work)
            except BaseException as error:
                failure = error
            self._begin(None)
            switch_interval.end()
            # If we die here the work is done and its caller has no answer: every call of the store may be repeated.
            _tell(piece.future, result, failure)
            del piece, result, failure
        self._discard()
        if self._ended is not None:
            _tell(self._ended, None, None)

    def _begin(self, piece: _Piece | None) -> None:
        with self._changing:
            self._under_way = piece

    def _cut_short(self) -> None:
        """Interrupt what is under way, if it is a read that nobody awaits; called from the event loop."""
        with self._changing:  # it does not end meanwhile, so nothing else is interrupted
            piece, connection = self._under_way, self._connection
            if piece is not None and piece.abandoned and connection is not None:
                with suppress(sqlite3.ProgrammingError):  # it has just been closed, since it broke
                    connection.raw.interrupt()

    def _do(self, work: DatabaseWork[T]) -> T:
        try:
            self._check()
            if self._connection is None:
                self._connection = self._connect()
            self._connection.stand()
            return work(self._connection)
        except BaseException as error:
            if lost(error) or (self._connection is not None and self._connection.in_transaction):
                self._discard()
            meant = translated(error)
            if meant is error:
                raise
            raise meant from error

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _tell(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    try:
        future.get_loop().call_soon_threadsafe(_settle, future, result, failure)
    except RuntimeError:
        return  # the loop that asked is closed


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
