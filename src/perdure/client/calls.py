"""Calls: questions to running processes. The answer to a call is an event in the history of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

from perdure import limits
from perdure.authoring.method import CallMethod
from perdure.client import validation
from perdure.client.answers import HELD_POLL_SECONDS, CallHint
from perdure.client.parts import Reference
from perdure.client.values import HINT_GAP_SECONDS, decoded, ended
from perdure.clock import Duration
from perdure.errors import CallRefused, CallUnanswered, KeyConflict, Overloaded, ProcessNotFound
from perdure.kernel.checkpoint import is_closed
from perdure.kernel.event import ANSWERS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import DELIVERED, Message, MessageType, SendAnswer, Written, call_text
from perdure.kernel.names import id_text
from perdure.kernel.payload import digest
from perdure.kernel.process import FINAL, Process, Status

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Calls(Reference):
    """The part of a handle that asks the code of a process a question and waits for the answer."""

    __slots__ = ()

    @overload
    async def call(self, name: CallMethod[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def call(
        self, name: str, /, value: object, type: type[T], *, key: str | None = None,
        timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client",
        context: Mapping[str, Any] | None = None,
    ) -> T: ...  # fmt: skip
    @overload
    async def call(
        self, name: str, /, value: object = None, type: Any = Any, *, key: str | None = None,
        timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client",
        context: Mapping[str, Any] | None = None,
    ) -> Any: ...  # fmt: skip
    async def call(self, name: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask the process a question and return the answer of its code, as ``type``.

        The code of a workflow receives the question by ``receive(name, Call[...])``. A machine is called by a method of
        its class and that method's arguments: ``handle.call(Account.deposit, 500)``; the options below are then those
        of the method, ``Account.deposit.options(key=...)``.

        A call with the same ``key`` and value is not sent again: it gets the answer to the first one. After ``timeout``
        seconds (default: never) TimeoutError is raised, also while the database is away; the question stays, and a call
        with the same key gets the answer later. An answer that is there already is returned even with 0. ``context`` is
        a small mapping that goes with the question: ``perdure.context()`` gives it in the method of a machine,
        ``Call.context`` in a workflow. Raises CallRefused if the code refuses, CallUnanswered if the process has ended
        or is broken and has not answered, KeyConflict if the key belongs to another question, PayloadError if a value
        cannot be stored or decoded, InvalidInput if the machine's class, as it is known here, has no such method,
        InboxFull, Overloaded.
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
        context: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        name, raw, key, sender = validation.call(name, value, key, who, why, origin, context)
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
            message = self._message(MessageType.CALL, name, raw, key, sender)
            if patience is None:
                answer = await self._asked(message, None)
            else:
                # Even without patience the store gets a moment, to say what it knows of the call.
                async with asyncio.timeout(max(patience, limits.POLL_SECONDS)):
                    answer = await self._asked(message, patience)
        except TimeoutError:
            text = f"no answer to {name!r} within {patience or 0:g} s; ask again with the same key"
            raise TimeoutError(text) from None
        finally:
            answers.waiting -= 1
        if key is not None and answer.digest is not None and answer.digest != digest(raw):
            raise KeyConflict(f"the key belongs to a call {name!r} with another value; use another key, or that value")
        if answer.type is EventType.CALL_ANSWERED:
            return answer
        failure = Failure.shown(answer.payload or b"{}")
        text = f"{name} was refused: {failure.type}: {failure.message}".rstrip(": ")
        raise CallRefused(text, type=failure.type, detail=failure.message)

    async def _asked(self, message: Message, patience: float | None) -> Event:
        """Send a question and wait for its answer; if our own worker holds the process, that may hear it unsent."""
        parts, id, name = self._parts, self.id_bytes, message.name
        brought = parts.outgoing.bring(message)
        written: Written | SendAnswer | None = None
        if brought is not None:
            began = asyncio.get_running_loop().time()
            if patience is None:
                written = await brought
            else:
                async with asyncio.timeout(patience):
                    written = await brought
            if isinstance(written, Written):
                call = call_text(name, written.number)
                for event in written.events:
                    if event.name == call and event.type in ANSWERS:
                        return event
            if patience is not None:
                patience = max(0.0, began + patience - asyncio.get_running_loop().time())
        hint = CallHint(partial(parts.local.holds, id))
        parts.followers.add(id, hint)
        try:
            if isinstance(written, Written):
                return await self._answer(call, True, hint, patience)
            sent = written or await parts.outgoing.sent(message)
            validation.check_sent(sent)
            fresh = brought is None and sent.verdict is DELIVERED
            return await self._answer(call_text(name, sent.number), fresh, hint, patience)
        finally:
            parts.followers.remove(id, hint)

    async def _answer(self, call: str, fresh: bool, hint: CallHint, patience: float | None) -> Event:
        """Wait for the answer; if the process ends meanwhile, look once more and give up.

        A ``fresh`` call cannot have been answered before it was followed; another one may have been long ago.
        """
        answers, results, id = self._parts.answers, self._parts.results, self.id_bytes
        end: asyncio.Future[Process] | None = None
        answers.begin(id, call, hint)
        try:
            answer = answers.known(id, call) if fresh else await answers.find(id, call)
            if answer is not None:
                return answer
            end = results.expect(id, here=self._parts.local.holds(id))
            end.add_done_callback(partial(ended, hint.wake))
            if patience is None:
                return await self._told(call, hint, end)
            async with asyncio.timeout(patience):
                return await self._told(call, hint, end)
        finally:
            if end is not None:
                results.expect_no_more(id, end)
            answers.end(id, call, hint)

    async def _told(self, call: str, hint: CallHint, end: asyncio.Future[Process]) -> Event:
        """Look for the answer at each hint that the process has published or answered, and once a second at least.

        What our own worker writes is told here: while it holds the process, looks are rare. A hint that names no
        process may be another one's: before the store is asked, the answer gets a moment to come by itself.
        """
        parts, id, loop = self._parts, self.id_bytes, asyncio.get_running_loop()
        looked = loop.time()
        while True:
            if parts.local.holds(id):
                await hint.wait()
            else:
                await _heard(hint, limits.POLL_SECONDS)
            hint.clear()
            if parts.followers.vague(hint) and parts.answers.known(id, call) is None:
                await _heard(hint, HINT_GAP_SECONDS)
                hint.clear()
            over = end.done()
            answer = parts.answers.known(id, call)
            if answer is not None:
                return answer
            if not over and loop.time() < looked + HELD_POLL_SECONDS and parts.local.holds(id):
                continue
            looked = loop.time()
            answer = await parts.answers.find(id, call)
            if answer is not None:
                return answer
            if over:
                raise self._unanswered(end, call)

    def _unanswered(self, end: asyncio.Future[Process], call: str) -> CallUnanswered:
        try:
            return _unanswered(end.result(), call)
        except ProcessNotFound:
            name = call.rpartition(":")[0]
            return CallUnanswered(f"process {self.id} was removed, and has not answered {name!r}")


async def _heard(hint: CallHint, seconds: float) -> None:
    """Wait for a hint, so long at most; then it is set, too."""
    timer = asyncio.get_running_loop().call_later(seconds, hint.wake)
    try:
        await hint.wait()
    finally:
        timer.cancel()


def _unanswered(process: Process, call: str) -> CallUnanswered:
    shown = f"{process.kind} {process.key or id_text(process.id)}"
    name = call.rpartition(":")[0]
    if process.status in FINAL:
        ended = "was cancelled" if process.status is Status.CANCELLED else f"has {process.status}"
        if is_closed(process.state):
            return CallUnanswered(f"{shown} was removed and has not answered {name!r}")
        return CallUnanswered(f"{shown} {ended} and has not answered {name!r}; its result says more")
    return CallUnanswered(
        f"{shown} is broken and has not answered {name!r}. Once it is repaired, ask again with the same key."
    )
