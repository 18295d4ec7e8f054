"""Commands to processes, by people and programs: each is decided by the kernel and written by one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, overload

from perdure import limits
from perdure.authoring.method import RepairMethod, SignalMethod
from perdure.client import decision, validation
from perdure.client.adjust import Adjustments
from perdure.client.decision import Decision, never
from perdure.client.edits import Edits
from perdure.clock import Duration
from perdure.errors import IllegalMove, ProcessNotFound
from perdure.kernel import command, removal
from perdure.kernel.message import MessageType, SendVerdict
from perdure.kernel.names import check_key
from perdure.kernel.process import Process
from perdure.kernel.repair import RepairedBefore
from perdure.kernel.transition import Sender
from perdure.logs import logger

P = ParamSpec("P")

log = logger("process")


class Commands(Edits, Adjustments):
    """The commands to a process. Every verb records ``who`` asks, ``why``, and from where (``origin``).

    All raise ProcessNotFound. A verb that returns nothing has taken effect when it returns; it raises IllegalMove if it
    does not fit the process's status, or if the process kept changing. ``retry``, ``restart_from``, ``set_result`` and
    ``skip`` raise UnreadablePayload or NewerRecord for a history that cannot be read here.
    """

    __slots__ = ()

    @overload
    async def signal(self, name: SignalMethod[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> SendVerdict: ...
    @overload
    async def signal(
        self, name: str, /, value: object = None, *, key: str | None = None, who: str = "", why: str = "",
        origin: str = "client", context: Mapping[str, Any] | None = None,
    ) -> SendVerdict: ...  # fmt: skip
    async def signal(self, name: Any, /, *args: Any, **kwargs: Any) -> SendVerdict:
        """Send a signal with a value; it waits in the inbox until the code of the process receives it.

        A machine is told something by a method of its class and that method's arguments:
        ``handle.signal(Account.close)``, with ``key``, ``who`` and ``why`` as options of the method.

        Of signals with the same ``key`` only the first counts. Returns DELIVERED; DUPLICATE if a signal with this key
        was sent before; FINISHED if the process has ended. ``origin`` is recorded only with ``who`` or ``why``. A
        machine's method gets the ``context`` that goes with it by ``perdure.context()``. Raises
        InboxFull, InvalidKey, and PayloadError if the value cannot be stored.
        """
        if isinstance(name, SignalMethod):
            raw, key, sender = validation.method_signal(name, args, kwargs)
            return (await self._send(MessageType.SIGNAL, name.name, raw, key, sender)).verdict
        return await self._tell(name, *args, **kwargs)

    async def _tell(
        self, name: str, value: object = None, *, key: str | None = None, who: str = "", why: str = "",
        origin: str = "client", context: Mapping[str, Any] | None = None,
    ) -> SendVerdict:  # fmt: skip
        signal = validation.signal(name, value, key, who, why, origin, context)
        return (await self._send(MessageType.SIGNAL, *signal)).verdict

    async def cancel(
        self,
        *,
        deadline: Duration | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> SendVerdict:
        """Ask a process to cancel: its code gets CancelledError where it waits, and may clean up.

        A process that has not ended ``deadline`` seconds from now is terminated, even if this client dies meanwhile.
        Does not wait for the end. Returns FINISHED if the process has ended already. Raises InvalidInput for a wrong
        deadline.
        """
        sender = validation.sender(who, why, origin)
        raw = sender.encode()
        if deadline is None:
            return (await self._send(MessageType.CANCEL, "cancel", raw, None, raw)).verdict
        until = await self._parts.store.now() + validation.duration(deadline, "the deadline")
        wish = command.wish(sender, until)
        verdict = (await self._send(MessageType.CANCEL, "cancel", wish, None, raw)).verdict
        # If we die here the process is asked to cancel, and the worker that holds it, or claims it next, sets the
        # deadline.
        if verdict is not SendVerdict.FINISHED:
            await self._bound(sender, until)
        return verdict

    async def _bound(self, sender: Sender, until: int) -> None:
        """Wait until its owner has written the deadline into the row; write it here if no owner does so in time."""
        patience = self._parts.machine.monotonic() + limits.OWNER_HEARS_SECONDS
        wait = limits.OWNER_HEARS_SECONDS / 1000
        while True:
            row = await self._parts.row(self.id_bytes)
            if row.final or (row.deadline is not None and row.deadline <= until):
                return
            if row.owner is None or self._parts.machine.monotonic() > patience:
                commit = command.bounded(row, sender, until, now=await self._parts.store.now())
                if await self._written(commit):
                    return
            await asyncio.sleep(wait)
            wait = min(wait * 2, limits.OWNER_HEARS_SECONDS / 20)

    async def hold(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Pause a process until it is resumed: messages wait, and results of its steps in flight do not count.

        Raises IllegalMove if it is not running.
        """
        await self._order(decision.hold(validation.sender(who, why, origin), self._parts.machine.random))

    async def resume(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Let a held process go on where it was; steps that were in flight run again under their idempotency keys.

        Raises IllegalMove if it is not held.
        """
        await self._order(decision.resume(validation.sender(who, why, origin)))

    async def terminate(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """End a process at once, whichever worker holds it; results of its steps in flight do not count.

        Its code does not run any more, so nothing is cleaned up or undone. Raises IllegalMove if it has ended.
        """
        await self._order(decision.terminate(validation.sender(who, why, origin)))

    async def fail(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Mark a process as failed at once, whichever worker holds it: whoever waits for it gets ProcessFailed.

        Its code does not run any more, so nothing is cleaned up or undone. Raises IllegalMove if it has ended.
        """
        await self._order(decision.fail(validation.sender(who, why, origin)))

    @overload
    async def repair(self, method: RepairMethod[P, None], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def repair(
        self, method: str, /, arguments: object = (), *, key: str | None = None, who: str = "", why: str = "",
        origin: str = "client",
    ) -> None: ...  # fmt: skip
    async def repair(self, method: Any, /, *args: Any, **kwargs: Any) -> None:
        """Let a broken machine go on with a method made for that, in place of the one that has failed.

        ``handle.repair(Account.corrected, 500)``, with ``who`` and ``why`` as options of the method; or by its name,
        with a list of its arguments. The method that has failed is given up: its changes do not count, its letter is
        not received again. What waits comes after the repair. To run the same method again use :meth:`retry`.

        Of repairs with the same ``key`` only the first counts, as long as it stands in the machine's history: the
        others return at once, whatever has come of the first, so that a request sent again repairs once. Raises
        IllegalMove if it is not a broken machine, InvalidInput and PayloadError for arguments that do not fit.
        """
        if isinstance(method, RepairMethod):
            raw, key, _ = validation.method_signal(method, args, kwargs)
            options = method.settings
            await self._repair(method.name, raw, validation.sender(options.who, options.why, "client"), key)
        else:
            await self._repair_by_name(method, *args, **kwargs)

    async def _repair_by_name(
        self, method: str, arguments: object = (), *, key: str | None = None, who: str = "", why: str = "",
        origin: str = "client",
    ) -> None:  # fmt: skip
        sender = validation.sender(who, why, origin)
        if key is not None:
            check_key(key, f"the key of the repair {method}")
        await self._repair(*validation.repair(method, arguments), sender, key)

    async def _repair(self, method: str, raw: bytes, sender: Sender, key: str | None) -> None:
        with suppress(RepairedBefore):
            await self._order(decision.repair(sender, method, raw, key))

    async def retry(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Let a failed, broken or held process go on from its last good event.

        A failed process goes on in a new run: the step that failed gets new attempts, under its old idempotency key.
        The new run has no deadline.
        Raises IllegalMove in any other status, and if a step that would count as done was undone.
        """
        await self._order(decision.retry(validation.sender(who, why, origin)))

    async def restart(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Begin again from the stored input, in a new run that keeps no results; the old run can still be read.

        Its steps run under new idempotency keys. Nothing is undone; children that have not answered are asked to end.
        All messages are delivered again, except requests to cancel. The new run has no deadline. Allowed in every
        status.
        """
        await self._order(decision.restart(validation.sender(who, why, origin)))

    async def restart_from(self, step: str, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Run a step again, and all that followed it, in a new run that keeps the results before and beside it.

        ``step`` is its name, or name and place (``charge:2``) if several steps of this name have ended. Only this step
        and those asked for later get new idempotency keys. The new run has no deadline. Allowed in every status.
        Raises IllegalMove if no such step has ended, if several have, or if a step that would be kept was undone.
        """
        await self._order(decision.restart_from(validation.sender(who, why, origin), step))

    async def set_result(
        self, step: str, value: object, *, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Set the result of a step that is open or has failed; a failed step gets its result in a new run.

        ``step`` is its name, or name and place (``charge:2``). If no open step is known by a bare name, this waits some
        seconds: the worker may not have reported it yet. If the code does not ask for the step, or cannot read the
        value, the process becomes broken, and its error shows both sides; ``restart_from`` the step takes the result
        back. Raises IllegalMove if no such step is open or has failed, or if several are; PayloadError for a value that
        cannot be stored.
        """
        await self._order(decision.set_result(validation.sender(who, why, origin), step, value))

    async def skip(self, step: str, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Skip a step that is open or has failed: its result becomes None. Otherwise like :meth:`set_result`."""
        await self._order(decision.skip(validation.sender(who, why, origin), step))

    async def remove(self, *, force: bool = False, who: str = "", why: str = "", origin: str = "client") -> None:
        """Delete a process that has ended, with its history and its messages; from then on it is not found.

        Its key is free again: the same start, sent once more, begins a new process. With ``force`` a process that has
        not ended is terminated in the same transaction: nothing is cleaned up or undone, its parent is told, and its
        children are asked to end. Only the log says who asked. Raises IllegalMove if it has not ended.
        """
        sender = validation.sender(who, why, origin)
        row = await self._parts.row(self.id_bytes)
        with suppress(ProcessNotFound):  # another command was quicker, or the answer to our own got lost
            if force and row.run > 2 and not row.final:  # too much may hang on it for one transaction
                row = await self._ended(sender)
                # If we die here it has ended, and is removed when the command is given again.
            if row.final:
                await self._thin_out(row)
                await self._order(Decision(lambda row, history, now: removal.removed(row, sender, now=now), never))
            else:
                await self._order(decision.end(partial(removal.removed, force=force), sender))
        why = f" because: {sender.why}" if sender.why else ""
        log.warning("process %s was removed by %s%s", self.id, sender.who or "somebody", why)

    async def _ended(self, sender: Sender) -> Process:
        """End a process that is to be removed; it may just as well end by itself meanwhile. The answer is its row."""
        try:
            await self._order(decision.terminate(sender))
        except IllegalMove:
            row = await self._parts.row(self.id_bytes)
            if row.final:
                return row
            raise
        return await self._parts.row(self.id_bytes)

    async def _thin_out(self, row: Process) -> None:
        """Remove the former runs of a process that goes, in transactions of their own: there may be very many."""
        left = row.run > 2
        while left:
            # If we die here it has fewer former runs, and is removed when the command is given again.
            left = (await self._parts.store.prune(0, 0, 0, of=(row.id, row.version))).runs > 0

    async def release_key(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Give back the key of a process that has ended: the next start with this key begins another process.

        A start that was answered before and is sent again, by a client or a queue that repeats it, runs a second time
        then. Raises IllegalMove if the process has not ended, or has no key.
        """
        sender = validation.sender(who, why, origin)
        await self._order(Decision(lambda row, history, now: removal.key_released(row, sender, now=now), never))
