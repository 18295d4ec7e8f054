"""An order to a process: its row is read, the kernel decides, one commit is written, whatever others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from perdure import limits
from perdure.client.decision import Decide, Decision, never
from perdure.client.parts import ClientParts, Reference
from perdure.clock import microseconds
from perdure.errors import BadRecord, IllegalMove, PerdureError
from perdure.futures import asked
from perdure.kernel import command, transition
from perdure.kernel.child import beforehand, portions, told_first, without_orders
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.commit import APPLIED, Commit, CommitAnswer
from perdure.kernel.event import Event
from perdure.kernel.manual_result import NothingOpen
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.store.snapshot import whole_run

log = logger("process")


class Orders(Reference):
    """The part of a handle that writes what the kernel decides about one process."""

    __slots__ = ()

    async def _order(self, decision: Decision) -> None:
        """Carry out a command, whatever else happens to the process meanwhile."""
        patience = self._parts.machine.monotonic() + limits.STEPS_TOLD_SECONDS
        while True:
            try:
                return await self._decided(decision)
            except NothingOpen:
                # A step that began a moment ago is in the row once its worker has renewed the lease.
                over = not decision.patient or self._parts.machine.monotonic() > patience
                if over or (await self._parts.row(self.id_bytes)).owner is None:
                    raise
            except BadRecord:
                if decision.unrecorded is None:
                    raise
                return await self._unrecorded(decision.unrecorded)
            await asyncio.sleep(limits.STEPS_TOLD_SECONDS / 20)

    async def _unrecorded(self, decide: Decide) -> None:
        """End a process without an event, since the database refuses one; its children are told all the same."""
        try:
            await self._decided(Decision(decide), whole=True)
        except BadRecord as error:
            text = "process %s is ended without regard to its history: its children, if it has any, are not told: %s"
            log.warning(text, self.id, error)
            await self._decided(Decision(lambda row, history, now: decide(row, (), now), never))

    async def _decided(self, decision: Decision, *, whole: bool = False) -> None:
        """Read the row and its run, let the kernel decide, and write; if the row has changed meanwhile, seize it.

        A row without an owner is not seized: other commands have changed it, or its worker has just let it go. Then
        this tries again after a short pause, by chance, so that commands that have met do not meet again. The
        ``whole`` history is read if it may have more events than the row counts.
        """
        pause = limits.COMMAND_AGAIN_SECONDS
        for _ in range(limits.COMMAND_TRIES):
            row = await self._parts.row(self.id_bytes)
            history: Sequence[Event] = ()
            if whole:
                history = await whole_run(self._parts.store, row.id, row.run)
            elif row.events and decision.reads(row):
                history = await self._parts.store.history(row.id, row.run, limit=row.events)
            if await self._carried_out(row, history, decision.decide, await self._parts.store.now()):
                return
            if await self._seized(decision.decide):
                return
            await asyncio.sleep(pause * self._parts.machine.random())
            pause = min(pause * 2, limits.COMMAND_AGAIN_CAP_SECONDS)
        raise IllegalMove(f"process {self.id} kept changing while the command was decided; nothing was done, try again")

    async def _seized(self, decide: Decide) -> bool:
        """Take a running process from its worker, so that the worker can change it no more; then decide and write.

        For a moment the command itself owns the process, with a short lease. Only another command can take it then.
        False if there was no owner: such a process waits for its time, and may not even have begun.
        """
        lease = microseconds(limits.SEIZED_SECONDS)
        claim = Claim(self._parts.machine.new_id(), (), 1, lease, only=self.id_bytes, seize=True)
        # A caller may be cancelled, as by the timeout of a web handler: what it has seized does not wait for the lease.
        seizing = asyncio.ensure_future(self._parts.store.claim(claim))
        try:
            answer = await asyncio.shield(seizing)
        except asyncio.CancelledError:
            seizing.add_done_callback(self._let_go)
            raise
        # If we die here the owner of the process is no worker: a sweep frees it, or its lease lapses, and it goes on
        # where it was. The command was not carried out, and its caller has had no answer.
        if not answer.claimed:
            return False
        row, history = answer.claimed[0].process, answer.claimed[0].events
        self._parts.local.taken(self.id_bytes, row.token)
        try:
            return await self._carried_out(row, history, decide, answer.now)
        except PerdureError:
            await self._written(transition.released(row, due_at=answer.now))
            raise

    def _let_go(self, seizing: asyncio.Future[ClaimAnswer]) -> None:
        """Give back what was seized for a caller that was cancelled meanwhile: the command is not carried out."""
        if seizing.cancelled() or seizing.exception() is not None:
            return
        answer = seizing.result()
        for claimed in answer.claimed:
            self._parts.local.taken(self.id_bytes, claimed.process.token)
            self._parts.doors.commit(transition.released(claimed.process, due_at=answer.now), lambda _: None)

    async def _carried_out(self, row: Process, history: Sequence[Event], decide: Decide, now: int) -> bool:
        """Write what the kernel decides; false if the row has changed meanwhile.

        Orders to very many children would make the transaction long: they are sent before it, in portions, while the
        parent is held.
        """
        commit = decide(row, history, now)
        letters = beforehand(commit.sends)
        if not letters:
            return await self._written(commit)
        if row.status is Status.RUNNING:
            told = Sender("perdure", told_first(letters), "command")
            pause = command.held(row, told, now=now, idle_at=now + microseconds(limits.IDLE_CHECK_SECONDS))
            if not commit.events:
                pause = transition.unrecorded(pause)
            if not await self._written(pause):
                return False
            commit = decide(pause.after, (*history, *pause.events), now)
        # If we die here the process stays held, and its error says why: the same command, given again, also sends the
        # orders that were not sent.
        for portion in portions(letters):
            await asyncio.gather(*(asked(self._parts.doors.send, letter) for letter in portion))
        return await self._written(replace(commit, sends=without_orders(commit.sends)))

    async def _written(self, commit: Commit) -> bool:
        sent = self._parts.machine.monotonic()
        return applied(self._parts, commit, await asked(self._parts.doors.commit, commit), sent)


def applied(parts: ClientParts, commit: Commit, answer: CommitAnswer, sent: float) -> bool:
    """Whether a command's commit was applied; then the local worker, and those who wait for the end, are told."""
    if answer.verdict is not APPLIED:
        return False
    if commit.after.token != commit.token:
        parts.local.taken(commit.after.id, commit.after.token)
    if commit.after.final:
        parts.results.ended(commit.after, sent)
    return True
