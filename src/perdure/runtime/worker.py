"""A worker: one OS process of ours. It hosts a scheduler with its agent, and a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from perdure.authoring.registry import Registry
from perdure.clock import Machine, microseconds
from perdure.errors import PerdureError
from perdure.kernel import transition
from perdure.kernel.commit import Commit
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.worker import Beat
from perdure.kernel.worker import Worker as WorkerRow
from perdure.limits import QUARANTINE_PROCESSES
from perdure.logs import logger
from perdure.runtime import gc_tuning
from perdure.runtime.claimer import Intake
from perdure.runtime.committer import Committer
from perdure.runtime.heartbeat import Grip, Incarnation, Pulse
from perdure.runtime.inbox import InboxReader
from perdure.runtime.pace import Pace
from perdure.runtime.quarantine import Solitary
from perdure.runtime.scheduler import Scheduler
from perdure.runtime.steps.isolated.pool import Cells
from perdure.runtime.steps.late_results import Latecomers
from perdure.runtime.steps.transactional import Notary
from perdure.runtime.store_time import StoreTime
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import nobody_hosts
from perdure.runtime.sweeps.context import Pages, Ward
from perdure.runtime.watchdog import Watchdog, Witness
from perdure.store.base import Overdue, Store
from perdure.telemetry import Telemetry

log = logger("worker")


class Worker:
    """Everything that one worker runs, started and stopped together.

    ``ended`` is told of every process whose end this worker committed. ``worn_out`` is set when it is short of
    something and does not recover: then it should be stopped, and another take its place.
    ``alone`` makes it a solitary worker: it runs one group of suspects and nothing else, no supervisor either.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        committer: Committer,
        time: StoreTime,
        machine: Machine,
        telemetry: Telemetry,
        pace: Pace,
        *,
        alone: bool = False,
    ) -> None:
        self.store = store
        self.registry = registry
        self.machine = machine
        self.telemetry = telemetry
        self.pace = pace
        self.time = time
        self.incarnation = Incarnation(machine.new_id())
        self.scheduler = Scheduler(
            self.incarnation, registry, committer, time, machine, telemetry, lease=pace.lease_seconds
        )
        latecomers = Latecomers(committer, self.sent)
        self.scheduler.agent.late, self.scheduler.agent.refused = latecomers.late, latecomers.refused
        self.shortages = self.scheduler.agent.shortages
        self.scheduler.agent.cells = Cells(registry.sources, telemetry, pace.cells, machine, self.shortages)
        self.scheduler.agent.notary = Notary(store, machine, self.scheduler)
        self.inbox = InboxReader(store, self.scheduler)
        self.intake = Intake(self.incarnation, store, registry, self.scheduler)
        self.pulse = Pulse(self.incarnation, store, self.scheduler, beat=pace.beat_seconds)
        self.grip = Grip(self.incarnation, store, self.scheduler)
        self.inbox.quiet = self.grip.doubt
        self.ward = Ward(
            self.incarnation,
            store,
            registry,
            committer,
            time,
            machine,
            telemetry,
            retention=pace.retention_seconds,
            key_retention=pace.key_retention_seconds,
        )
        self.supervisor = Supervisor(self.ward)
        self.solitary = Solitary(store.url, registry, pace, machine, telemetry)
        self.watchdog = Watchdog(self.pulse, Witness(store.url, machine), machine, telemetry, exits=pace.exit_when_hung)
        self.alone, self._calm = alone, False
        self._hurry, self.worn_out = asyncio.Event(), asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._look_round: asyncio.Task[None] | None = None

    def on_end(self, ended: Callable[[Process, float], None], parted: Callable[[bytes], None]) -> None:
        """Have ``ended`` told of every process that ended or was parked here, ``parted`` of the others let go."""
        self.scheduler.ended = ended
        self.scheduler.parted = parted

    async def start(self) -> None:
        """Enlist, then begin to beat, to claim and to sweep."""
        await self._enlist(self.incarnation.id)
        if self.scheduler.agent.notary is not None:
            self.scheduler.agent.notary.open()
        self._calm = not self.machine.simulated
        if self._calm:
            gc_tuning.calm()
        self.scheduler.unheard = self.inbox.want
        self.scheduler.waiting = self.intake.waiting
        self.scheduler.posted = self._posted
        self.scheduler.room = self.intake.parted
        self.intake.reconcile = self.reconcile
        self.scheduler.unreadable.handover.others = self.ward.offers
        self.ward.taken = self.taken
        self.ward.undue = self.intake.undue
        self.ward.steady = self.pulse.steady
        self.intake.ended = self.pulse.ended = self._ended
        self.pulse.strayed = self.grip.strayed = self.scheduler.strayed = self.intake.strayed
        self.intake.suspects = self.solitary.wanted
        self.intake.capacity = self.pace.in_flight
        self.shortages.restart = lambda why: self.worn_out.set()
        self.watchdog.fence = self._fence
        self.pulse.loop.start()
        self.pulse.guard.start()
        self.grip.loop.start()
        self.inbox.loop.start()
        if self.alone:
            self.intake.alone, self.intake.capacity, self.scheduler.alone = True, QUARANTINE_PROCESSES, True
            self.supervisor.start(alone=True)
        else:
            self.supervisor.start()
            self.solitary.loop.start()
            self._look_round = asyncio.create_task(nobody_hosts.report(self.store), name="perdure look round")
        self.intake.loop.start()
        if not self.machine.simulated:
            self.watchdog.start()

    def hurry(self) -> None:
        """While draining: wait for no step any longer, hand everything back now."""
        self._hurry.set()

    def hint(self) -> None:
        """Work may be due, or a message may have come: look now."""
        self.intake.wake()
        self.inbox.hint()

    def sent(self, process: bytes, owner: bytes | None) -> None:
        """A message was sent from here: if we have the process in hand it hears at once, if nobody has it it is due."""
        if owner is None:
            self.intake.wake()
        elif owner == self.incarnation.id:
            self.inbox.look(process)

    def _posted(self, commit: Commit) -> None:
        """A commit of ours has started children or sent messages: whoever of them we have in hand hears at once."""
        if commit.sends:
            self.told([message.process for message in commit.sends])
            self.intake.soon()
        if commit.starts:
            children = [start.process for start in commit.starts]
            self.intake.named([child.kind for child in children], [child.id for child in children])

    def told(self, processes: Sequence[bytes]) -> None:
        """Messages were sent to these processes, or they were taken: those in hand hear at once. None named: any."""
        if not processes:
            self.grip.doubt()
        for process in processes:
            if process in self.scheduler.hand:
                self.inbox.look(process)

    def taken(self, process: bytes, token: int | None) -> None:
        """What we wrote took a row from whoever held it: if that was us, let go at once, without the fence.

        Not if we have claimed it since, before we heard of what we wrote: then our token is later than the ``token`` of
        that. None means any.
        """
        activation = self.scheduler.hand.get(process)
        if activation is not None and (token is None or activation.process.token < token):
            self.scheduler.drop(activation)

    @property
    def busy(self) -> int:
        """How many processes are in hand, or about to be."""
        return len(self.scheduler.hand) + len(self.scheduler.starting)

    def has_room(self, kind: str) -> bool:
        """Whether this worker, short of something, may take a process of a kind in hand."""
        return self.busy < self.shortages.room(self.pace.in_flight) and self.shortages.serves(kind)

    async def until_idle(self, seconds: float) -> None:
        """Work until nothing has been claimed for so many seconds, and nothing is in hand or waits for a place."""
        claimed, emptied = self.intake.claimed_any, self.scheduler.emptied
        while True:
            try:
                await asyncio.wait_for(claimed.wait(), seconds)
            except TimeoutError:
                if self.intake.suspects_waiting:
                    continue
                if not self.scheduler.hand:  # it is told of a claim before that has looked who died, and is in hand
                    return
            claimed.clear()
            emptied.clear()
            if self.busy:
                await emptied.wait()

    async def drain(self, seconds: float) -> None:
        """Stop taking work; let steps in flight finish for up to so many seconds, then hand the rest back."""
        emptied = self.scheduler.emptied
        emptied.clear()
        self.scheduler.drain()
        if self.scheduler.hand:
            log.info("stopping: %d in hand, whose steps have up to %g s to finish", len(self.scheduler.hand), seconds)
        await self.intake.loop.stop()
        if self.scheduler.hand:
            ends = [asyncio.create_task(emptied.wait()), asyncio.create_task(self._hurry.wait())]
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        for activation in list(self.scheduler.hand.values()):
            self.scheduler.hand_back(activation)
        if self.intake.unsure and not self._hurry.is_set():
            try:
                await self.reconcile()
            except PerdureError:
                pass  # the store is away: when our incarnation is retired or found silent, they are freed

    async def stop(self, seconds: float) -> None:
        """Drain, end all loops, and retire the incarnation."""
        if self._calm:
            self._calm = False
            gc_tuning.restore()
        await self.drain(seconds)
        for task in (self._ending, self._look_round):
            if task is not None:
                task.cancel()
        await self.supervisor.stop()
        await self.solitary.stop(hurry=self._hurry)
        for loop in (self.inbox.loop, self.grip.loop, self.pulse.guard, self.pulse.loop):
            await loop.stop()
        await self.scheduler.agent.close()
        self.watchdog.stop()

    async def retire(self) -> None:
        """Say goodbye to the store: whatever this incarnation still owned is free at once."""
        await self.store.retire(self.incarnation.id, None, died=False)

    async def _enlist(self, incarnation: bytes) -> None:
        offer = self.scheduler.unreadable.handover.offer = self.registry.offer(getattr(self.store, "schema", 0))
        row = WorkerRow(incarnation, self.machine.name(), offer.encode())
        sent = self.machine.monotonic()
        await self.store.enlist(row, microseconds(self.pace.lease_seconds))
        self.pulse.sure_until = sent + self.pace.lease_seconds
        sent = self.machine.monotonic()
        self.time.heard(await self.store.now(), sent)

    def _fence(self, incarnation: bytes, hang: bytes | None) -> None:
        """The event loop turns again after it was blocked until the lease was lost: nothing in hand is ours now."""
        if incarnation != self.incarnation.id:
            return
        for activation in list(self.scheduler.hand.values()):
            self.telemetry.count("leases_lost")
            self.scheduler.drop(activation)
        self.incarnation.lost, self.incarnation.hang = True, hang
        self._ended(incarnation)

    def _ended(self, incarnation: bytes) -> None:
        """Others have ended this incarnation: drop everything in hand and go on under a new id (rule 11).

        What was asked in the name of one before says nothing of the present one.
        """
        if incarnation == self.incarnation.id and (self._ending is None or self._ending.done()):
            self._ending = asyncio.create_task(self._renew(), name="perdure new incarnation")

    async def _renew(self) -> None:
        self.telemetry.count("incarnations_renewed")
        log.warning("worker %s was ended by others; it goes on as a new incarnation", id_text(self.incarnation.id))
        for activation in list(self.scheduler.hand.values()):
            self.scheduler.drop(activation)
        incarnation = self.machine.new_id()
        try:
            await self._enlist_at_last(incarnation)
        finally:  # not before: what asks in its name until then would be told that it has ended
            self.incarnation.id, self.incarnation.lost = incarnation, False
        self.intake.wake()

    async def _enlist_at_last(self, incarnation: bytes) -> None:
        while True:
            try:
                if self.incarnation.hang is not None:  # whoever frees what we held needs it
                    await self.store.beat(Beat(self.incarnation.id, (), 0, 0, self.incarnation.hang))
                    await self.store.retire(self.incarnation.id, None, died=False)
                    self.incarnation.hang = None
                return await self._enlist(incarnation)
            except PerdureError as error:
                log.warning("the new incarnation cannot be enlisted yet: %s", error)
                await asyncio.sleep(self.pace.beat_seconds)

    async def reconcile(self) -> int:
        """Free rows that this worker owns but does not hold: a claim whose answer never came (rule 5)."""
        pages, seen, freed = Pages(self.store, Overdue.OWNED, self.incarnation.id), set[bytes](), 0
        # Renewals move rows in hand behind all others: a page of nothing but those that were seen ends it.
        while not (owned := {row.id: row for row in await pages.next()}).keys() <= seen:
            seen |= owned.keys()
            held = self.scheduler.hand.keys() | self.scheduler.starting
            lost = [row for row in owned.values() if row.id not in held]
            freed += len(await self.ward.write([transition.released(row, due_at=self.time.now()) for row in lost]))
            if not pages.more:
                break
        return freed
