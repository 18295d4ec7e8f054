"""Calls: questions to running processes. The answer to a call is an event in the history of the process."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar, overload

from perdure import limits
from perdure.authoring.machine.method import CallMethod
from perdure.client import validation
from perdure.client.parts import Reference
from perdure.client.values import HINT_GAP_SECONDS, decoded, ended
from perdure.clock import Duration
from perdure.errors import CallRefused, CallUnanswered, KeyConflict, Overloaded
from perdure.kernel.event import ANSWERS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType, call_text
from perdure.kernel.names import id_text
from perdure.kernel.payload import digest
from perdure.kernel.process import FINAL, Process, Status
from perdure.store.base import Store

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
_ANSWERS = tuple(sorted(ANSWERS))


class Answers:
    """Looks for the answers to calls; one query looks for all that are wanted of one process at one moment.

    ``open`` are the calls that wait here for their answers, by process and name.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting = 0
        self.open: set[tuple[bytes, str]] = set()
        self._wanted: dict[bytes, dict[str, list[asyncio.Future[Event | None]]]] = {}
        self._looks: set[asyncio.Task[None]] = set()

    async def find(self, id: bytes, name: str) -> Event | None:
        """The answer to the call ``name`` (``quote:7``: its name and message number); None if there is none yet."""
        future: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        wanted = self._wanted.get(id)
        if wanted is None:
            wanted = self._wanted[id] = {}
            look = asyncio.create_task(self._look(id))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
        wanted.setdefault(name, []).append(future)
        return await future

    async def _look(self, id: bytes) -> None:
        wanted = self._wanted.pop(id)
        names = iter(wanted)
        while some := tuple(islice(names, limits.LIST_ROWS)):
            try:
                found = await self.store.history(id, 1, limit=len(some), types=_ANSWERS, names=some)
            except Exception as error:
                self._tell((future for name in some for future in wanted[name]), error)
                continue
            answers = {event.name: event for event in found}
            for name in some:
                self._tell(wanted[name], answers.get(name))

    @staticmethod
    def _tell(futures: Any, answer: Event | Exception | None) -> None:
        for future in futures:
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class Calls(Reference):
    """The part of a handle that asks the code of a process a question and waits for the answer."""

    __slots__ = ()

    @overload
    async def call(self, name: CallMethod[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def call(
        self, name: str, /, value: object, type: type[T], *, key: str | None = None,
        timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client",
    ) -> T: ...  # fmt: skip
    @overload
    async def call(
        self, name: str, /, value: object = None, type: Any = Any, *, key: str | None = None,
        timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client",
    ) -> Any: ...  # fmt: skip
    async def call(self, name: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask the process a question and return the answer of its code, as ``type``.

        The code of a workflow receives the question by ``receive(name, Call[...])``. A machine is called by a method of
        its class and that method's arguments: ``handle.call(Account.deposit, 500)``; the options below are then those
        of the method, ``Account.deposit.options(key=...)``.

        A call with the same ``key`` and value is not sent again: it gets the answer to the first one. After ``timeout``
        seconds (default: never) TimeoutError is raised; the question stays, and a call with the same key gets the
        answer later. Raises CallRefused if the code refuses, CallUnanswered if the process has ended or is broken and
        has not answered, KeyConflict if the key belongs to another question, PayloadError if a value cannot be stored
        or decoded, InboxFull, Overloaded.
        """
        if not isinstance(name, CallMethod):
            return await self._ask(name, *args, **kwargs)
        options = name.settings
        raw, key, sender = validation.method_call(name, args, kwargs)
        answer = await self._answered(name.name, raw, key, sender, validation.timeout(options.timeout))
        return name.shape.decode_result(answer.payload or b"null")

    async def _ask(
        self, name: str, value: object = None, type: Any = Any, *, key: str | None = None,
        timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client",
    ) -> Any:  # fmt: skip
        name, raw, key, sender = validation.call(name, value, key, who, why, origin)
        return decoded(await self._answered(name, raw, key, sender, validation.timeout(timeout)), type)

    async def _answered(
        self, name: str, raw: bytes, key: str | None, sender: bytes | None, patience: float | None
    ) -> Event:
        """Send a question and return its answer; raises CallRefused, and all that :meth:`call` names."""
        answers = self._parts.answers
        if answers.waiting >= limits.WAITING_CALLS:
            raise Overloaded(f"{limits.WAITING_CALLS:,} calls wait for answers here already; try again later")
        answers.waiting += 1
        try:
            sent = await self._send(MessageType.CALL, name, raw, key, sender)
            answer = await self._answer(name, sent.number, patience)
        finally:
            answers.waiting -= 1
        if answer.digest is not None and answer.digest != digest(raw):
            raise KeyConflict(f"the key belongs to a call {name!r} with another value; use another key, or that value")
        if answer.type is EventType.CALL_ANSWERED:
            return answer
        failure = Failure.shown(answer.payload or b"{}")
        text = f"{name} was refused: {failure.type}: {failure.message}".rstrip(": ")
        raise CallRefused(text, type=failure.type, detail=failure.message)

    async def _answer(self, name: str, number: int, patience: float | None) -> Event:
        """Wait for the answer; if the process ends meanwhile, look once more and give up."""
        call = call_text(name, number)
        self._parts.answers.open.add((self.id_bytes, call))
        hint = self._parts.followers.add(self.id_bytes)
        end = asyncio.create_task(self._parts.ended(self.id_bytes))
        end.add_done_callback(partial(ended, hint))
        try:
            answer = await self._parts.answers.find(self.id_bytes, call)
            if answer is not None:
                return answer
            async with asyncio.timeout(patience):
                return await self._told(call, hint, end)
        except TimeoutError:
            raise TimeoutError(f"no answer to {name!r} within {patience:g} s; ask again with the same key") from None
        finally:
            end.cancel()
            self._parts.answers.open.discard((self.id_bytes, call))
            self._parts.followers.remove(self.id_bytes, hint)

    async def _told(self, call: str, hint: asyncio.Event, end: asyncio.Task[Process]) -> Event:
        """Look for the answer at each hint that the process has published or answered, and once a second at least."""
        pause = HINT_GAP_SECONDS
        while True:
            try:
                async with asyncio.timeout(pause):
                    await hint.wait()
            except TimeoutError:
                pause = min(2 * pause, limits.POLL_SECONDS)
            if self._parts.followers.vague(hint):
                await asyncio.sleep(HINT_GAP_SECONDS)
            hint.clear()
            over = end.done()
            answer = await self._parts.answers.find(self.id_bytes, call)
            if answer is not None:
                return answer
            if over:
                raise _unanswered(end.result(), call)


def _unanswered(process: Process, call: str) -> CallUnanswered:
    shown = f"{process.kind} {process.key or id_text(process.id)}"
    name = call.rpartition(":")[0]
    if process.status in FINAL:
        ended = "was cancelled" if process.status is Status.CANCELLED else f"has {process.status}"
        return CallUnanswered(f"{shown} {ended} and has not answered {name!r}; its result says more")
    return CallUnanswered(
        f"{shown} is broken and has not answered {name!r}. Once it is repaired, ask again with the same key."
    )
