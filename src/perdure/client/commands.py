"""Commands to processes, by people and programs: each is decided by the kernel and written by one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.validation import ProcessId
from perdure.clock import Duration, Machine, microseconds
from perdure.errors import BadRecord, IllegalMove, PerdureError, ProcessNotFound
from perdure.futures import asked
from perdure.kernel import command, manual_result, run, transition
from perdure.kernel.child import beforehand, without_orders
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.event import Event
from perdure.kernel.integrity import refuse_newer
from perdure.kernel.message import Message, MessageType, SendAnswer, SendVerdict
from perdure.kernel.names import id_text
from perdure.kernel.payload import encode
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import first_trouble
from perdure.kernel.transition import Sender
from perdure.store.base import Search, Store

if TYPE_CHECKING:
    from perdure.client.client import Doors
    from perdure.client.results import Results

Decide = Callable[[Process, Sequence[Event], int], Commit]
"""The kernel's decision from the row, the history of its run, and the store's time."""


class Commands:
    """What a client can order. Every verb records ``who`` asks, ``why``, and from where (``origin``).

    All raise ProcessNotFound, and IllegalMove if the command does not fit the process's status.
    """

    store: Store
    doors: Doors
    machine: Machine
    results: Results
    sent: Callable[[SendAnswer], None]
    taken: Callable[[bytes, int | None], None]

    async def row(self, process: ProcessId) -> Process:
        """The stored row of a process; raises ProcessNotFound."""
        validation.outside_a_turn()
        id = validation.reference(process)
        found = await self.store.search(Search(ids=(id,), limit=1))
        if not found:
            raise ProcessNotFound(f"no process has the id {id_text(id)}; `perdure ps` lists what there is")
        return found[0]

    async def cancel(
        self,
        process: ProcessId,
        *,
        deadline: Duration | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> SendVerdict:
        """Ask a process to cancel: its code may clean up first.

        If it has not ended ``deadline`` seconds from now it is terminated, whatever becomes of us meanwhile.
        """
        sender = validation.sender(who, why, origin)
        raw = sender.encode()
        if deadline is None:
            return await self._send(process, MessageType.CANCEL, "cancel", raw, None, raw)
        until = await self.store.now() + validation.duration(deadline, "the deadline")
        verdict = await self._send(process, MessageType.CANCEL, "cancel", command.wish(sender, until), None, raw)
        # If we die here it is asked to cancel, and whoever has it in hand, or takes it next, notes the deadline.
        if verdict is not SendVerdict.FINISHED:
            await self._bound(process, sender, until)
        return verdict

    async def _bound(self, process: ProcessId, sender: Sender, until: int) -> None:
        """See to it that the row bears the deadline: by its owner's next commit, or by ours if nobody listens."""
        patience = self.machine.monotonic() + limits.OWNER_HEARS_SECONDS
        wait = limits.OWNER_HEARS_SECONDS / 1000
        while True:
            row = await self.row(process)
            if row.final or (row.deadline is not None and row.deadline <= until):
                return
            if row.owner is None or self.machine.monotonic() > patience:
                commit = command.bounded(row, sender, until, now=await self.store.now())
                if await self._written(commit):
                    return
            await asyncio.sleep(wait)
            wait = min(wait * 2, limits.OWNER_HEARS_SECONDS / 20)

    async def hold(self, process: ProcessId, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Pause a running process until it is resumed: its steps in flight are fenced off, messages wait."""
        sender = validation.sender(who, why, origin)
        spread = 1 + limits.IDLE_CHECK_JITTER * (2 * self.machine.random() - 1)
        idle = microseconds(limits.IDLE_CHECK_SECONDS * spread)
        await self._order(
            process, lambda row, history, now: command.held(row, sender, now=now, idle_at=now + idle), read=False
        )

    async def resume(self, process: ProcessId, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Let a held process go on where it was; steps that were in flight run again under their old keys."""
        sender = validation.sender(who, why, origin)
        await self._order(process, lambda row, history, now: command.resumed(row, sender, now=now), read=False)

    async def terminate(self, process: ProcessId, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """End a process at once, whoever holds it; its steps in flight are fenced off."""
        sender = validation.sender(who, why, origin)
        try:
            await self._order(process, lambda row, history, now: transition.terminated(row, sender, history, now=now))
        except BadRecord:  # nothing can be appended to its history; ended it is all the same

            def forced(row: Process, history: Sequence[Event], now: int) -> Commit:
                return transition.unrecorded(transition.terminated(row, sender, now=now))

            await self._order(process, forced, read=False)

    async def retry(self, process: ProcessId, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Let a failed, broken or held process go on from its last good event."""
        sender = validation.sender(who, why, origin)

        def retried(row: Process, history: Sequence[Event], now: int) -> Commit:
            if row.status is Status.FAILED:
                _refuse_unreadable(row, history)
            return run.retried(row, history, sender, now=now)

        await self._order(process, retried)

    async def restart(self, process: ProcessId, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Begin again from the stored input, in a new run that keeps nothing; the old one can still be read.

        Its steps run under new idempotency keys. Nothing is undone; children that have not answered are asked to end;
        messages are offered again, but for wishes to cancel.
        """
        sender = validation.sender(who, why, origin)
        await self._order(process, lambda row, history, now: run.restarted(row, history, sender, now=now))

    async def restart_from(
        self, process: ProcessId, step: str, *, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Run a step again, and all that followed it, in a new run that keeps what was before and beside it.

        ``step`` is its name, or name and place (``charge:2``) if it was answered more than once. Only that step and
        what is asked for later get new idempotency keys.
        """
        sender = validation.sender(who, why, origin)

        def restarted(row: Process, history: Sequence[Event], now: int) -> Commit:
            _refuse_unreadable(row, history)
            return run.restarted_from(row, history, step, sender, now=now)

        await self._order(process, restarted)

    async def set_result(
        self, process: ProcessId, step: str, value: object, *, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Give a step that is open or has failed its result by hand; a failed one gets it in a new run.

        ``step`` is its name, or name and place (``charge:2``). By a bare name, one that its worker has not told of yet
        is waited for, at most as long as that takes. If the code does not ask for that step, or cannot read
        that value, the process breaks, which tells both sides; ``restart_from`` that step takes the result back.
        """
        await self._by_hand(process, step, value, validation.sender(who, why, origin), skipped=False)

    async def skip(
        self, process: ProcessId, step: str, *, who: str = "", why: str = "", origin: str = "client"
    ) -> None:
        """Leave out a step that is open or has failed: its result is None; else as :meth:`set_result`."""
        await self._by_hand(process, step, None, validation.sender(who, why, origin), skipped=True)

    async def _by_hand(self, process: ProcessId, step: str, value: object, sender: Sender, *, skipped: bool) -> None:
        raw = encode(value, what=f"the result of step {step!r}")

        def given(row: Process, history: Sequence[Event], now: int) -> Commit:
            _refuse_unreadable(row, history)
            return manual_result.set_by_hand(row, history, step, raw, sender, now=now, skipped=skipped)

        patience = self.machine.monotonic() + limits.STEPS_TOLD_SECONDS
        while True:
            try:
                return await self._order(process, given)
            except (
                manual_result.NothingOpen
            ):  # a step that began a moment ago stands in the row from its worker's next beat on
                if self.machine.monotonic() > patience or (await self.row(process)).owner is None:
                    raise
            await asyncio.sleep(limits.STEPS_TOLD_SECONDS / 20)

    # -- writing -------------------------------------------------------------------------------------------------

    async def _send(
        self, process: ProcessId, type: MessageType, name: str, raw: bytes, key: str | None, sender: bytes | None
    ) -> SendVerdict:
        answer = await self._post(validation.reference(process), type, name, raw, key, sender)
        return answer.verdict

    async def _post(
        self, id: bytes, type: MessageType, name: str, raw: bytes, key: str | None, sender: bytes | None
    ) -> SendAnswer:
        validation.outside_a_turn()
        message = Message(self.machine.new_id(), id, type, name, raw, key, sender)
        answer: SendAnswer = await asked(self.doors.send, message)
        if answer.verdict is SendVerdict.NOT_FOUND:
            raise ProcessNotFound(f"no process has the id {id_text(id)}; nothing was sent")
        validation.check_room(answer)
        self.sent(answer)
        return answer

    async def _order(self, process: ProcessId, decide: Decide, *, read: bool = True) -> None:
        """Read the row and its run, let the kernel decide, write if nobody was quicker; else seize the row first."""
        for _ in range(limits.COMMAND_TRIES):
            row = await self.row(process)
            history: Sequence[Event] = ()
            if read and row.events:
                history = await self.store.history(row.id, row.run, limit=row.events)
            if await self._carried_out(row, history, decide, await self.store.now()):
                return
            if await self._seized(row.id, decide):
                return
        raise IllegalMove(
            f"process {id_text(row.id)} kept changing while the command was decided; nothing was done, try again"
        )

    async def _seized(self, id: bytes, decide: Decide) -> bool:
        """Take a running process from whoever has it, so that nobody can be quicker, then decide and write.

        For a moment the command itself is its owner, with a lease of its own. Only another command can take it then.
        """
        lease = microseconds(limits.SEIZED_SECONDS)
        answer = await self.store.claim(Claim(self.machine.new_id(), (), 1, lease, only=id, seize=True))
        # If we die here the process is in nobody's hand: a sweep frees it, or its lease lapses, and it goes on where it
        # was. The command was not carried out; whoever gave it has had no answer.
        if not answer.claimed:
            return False
        row, history = answer.claimed[0].process, answer.claimed[0].events
        self.taken(id, row.token)
        try:
            return await self._carried_out(row, history, decide, answer.now)
        except PerdureError:
            await self._written(transition.released(row, due_at=answer.now))
            raise

    async def _carried_out(self, row: Process, history: Sequence[Event], decide: Decide, now: int) -> bool:
        """Write what the kernel decides, if nobody was quicker.

        Where many children are to hear of it, one transaction would be long: they are told before, in portions, while
        their parent is held.
        """
        commit = decide(row, history, now)
        letters = beforehand(commit.sends)
        if not letters:
            return await self._written(commit)
        if row.status is Status.RUNNING:
            told = Sender("perdure", f"its {len(letters):,} children are told first", "command")
            pause = command.held(row, told, now=now, idle_at=now + microseconds(limits.IDLE_CHECK_SECONDS))
            if not await self._written(pause):
                return False
            commit = decide(pause.after, (*history, *pause.events), now)
        # If we die here it stays held, and says why: whoever gives the command again tells those who were not told.
        for first in range(0, len(letters), limits.OUTBOX_RECORDS):
            portion = letters[first : first + limits.OUTBOX_RECORDS]
            await asyncio.gather(*(asked(self.doors.send, letter) for letter in portion))
        return await self._written(replace(commit, sends=without_orders(commit.sends)))

    async def _written(self, commit: Commit) -> bool:
        sent = self.machine.monotonic()
        answer: CommitAnswer = await asked(self.doors.commit, commit)
        if answer.verdict is not Verdict.APPLIED:
            return False
        if commit.after.token != commit.token:
            self.taken(commit.after.id, commit.after.token)
        if commit.after.final:
            self.results.ended(commit.after, sent)
        return True


def _refuse_unreadable(row: Process, history: Sequence[Event]) -> None:
    """What cannot be opened here would be copied as it is, what is not known left out: that is told before."""
    refuse_newer(row, history)
    if trouble := first_trouble(event.payload for event in history):
        raise trouble
