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
from perdure.kernel.worker import Beat, WorkerRow
from perdure.limits import QUARANTINE_PROCESSES
from perdure.logs import logger
from perdure.runtime import gc_tuning
from perdure.runtime.claimer import Claimer
from perdure.runtime.committer import Committer
from perdure.runtime.heartbeat import Heartbeat, Incarnation, LeaseCheck
from perdure.runtime.inbox import InboxReader
from perdure.runtime.options import WorkerOptions
from perdure.runtime.quarantine import Quarantine
from perdure.runtime.scheduler import Scheduler
from perdure.runtime.steps.isolated.pool import ChildPool
from perdure.runtime.steps.late_results import LateResults
from perdure.runtime.steps.transactional import TransactionalSteps
from perdure.runtime.store_time import StoreTime
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import unhosted
from perdure.runtime.sweeps.context import Pages, SweepContext
from perdure.runtime.watchdog import Watchdog, Witness
from perdure.store.base import Overdue, Store
from perdure.telemetry import Telemetry

log = logger("worker")


class Worker:
    """Everything that one worker runs, started and stopped together.

    ``ended`` is told of every process whose end this worker committed. ``worn_out`` is set when it is short of
    something and does not recover: then it should be stopped, and another take its place.
    ``alone`` makes it a quarantine worker: it runs one group of suspects and nothing else, no supervisor either.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        committer: Committer,
        time: StoreTime,
        machine: Machine,
        telemetry: Telemetry,
        options: WorkerOptions,
        *,
        alone: bool = False,
    ) -> None:
        self.store = store
        self.registry = registry
        self.machine = machine
        self.telemetry = telemetry
        self.options = options
        self.time = time
        self.incarnation = Incarnation(machine.new_id())
        self.scheduler = Scheduler(
            self.incarnation, registry, committer, time, machine, telemetry, lease=options.lease_seconds
        )
        late_results = LateResults(committer, self.sent)
        self.scheduler.agent.late, self.scheduler.agent.refused = late_results.late, late_results.refused
        self.shortages = self.scheduler.agent.shortages
        self.scheduler.agent.pool = ChildPool(registry.sources, telemetry, options.cells, machine, self.shortages)
        self.scheduler.agent.transactional_steps = TransactionalSteps(store, machine, self.scheduler)
        self.inbox = InboxReader(store, self.scheduler)
        self.claimer = Claimer(self.incarnation, store, registry, self.scheduler)
        self.heartbeat = Heartbeat(self.incarnation, store, self.scheduler, beat=options.beat_seconds)
        self.lease_check = LeaseCheck(self.incarnation, store, self.scheduler)
        self.inbox.quiet = self.lease_check.doubt
        self.context = SweepContext(
            self.incarnation, store, registry, committer, time, machine, telemetry,
            retention=options.retention_seconds, key_retention=options.key_retention_seconds,
        )  # fmt: skip
        self.supervisor = Supervisor(self.context)
        self.quarantine = Quarantine(store.url, registry, options, machine, telemetry)
        self.watchdog = Watchdog(
            self.heartbeat, Witness(store.url, machine), machine, telemetry, exits=options.exit_when_hung
        )
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
        if self.scheduler.agent.transactional_steps is not None:
            self.scheduler.agent.transactional_steps.open()
        self._calm = not self.machine.simulated
        if self._calm:
            gc_tuning.calm()
        self.scheduler.unheard = self.inbox.want
        self.scheduler.waiting = self.claimer.waiting
        self.scheduler.posted = self._posted
        self.scheduler.room = self.claimer.parted
        self.claimer.reconcile = self.reconcile
        self.scheduler.unreadable.handover.others = self.context.offers
        self.context.taken = self.taken
        self.context.undue = self.claimer.undue
        self.context.steady = self.heartbeat.steady
        self.claimer.ended = self.heartbeat.ended = self._ended
        self.heartbeat.strayed = self.lease_check.strayed = self.scheduler.strayed = self.claimer.strayed
        self.claimer.suspects = self.quarantine.wanted
        self.claimer.capacity = self.options.in_flight
        self.shortages.restart = lambda why: self.worn_out.set()
        self.watchdog.fence = self._fence
        self.heartbeat.loop.start()
        self.heartbeat.guard.start()
        self.lease_check.loop.start()
        self.inbox.loop.start()
        if self.alone:
            self.claimer.alone, self.claimer.capacity, self.scheduler.alone = True, QUARANTINE_PROCESSES, True
            self.supervisor.start(alone=True)
        else:
            self.supervisor.start()
            self.quarantine.loop.start()
            self._look_round = asyncio.create_task(unhosted.report(self.store), name="perdure look round")
        self.claimer.loop.start()
        if not self.machine.simulated:
            self.watchdog.start()

    def hurry(self) -> None:
        """While draining: wait for no step any longer, hand everything back now."""
        self._hurry.set()

    def hint(self) -> None:
        """Work may be due, or a message may have come: look now."""
        self.claimer.wake()
        self.inbox.hint()

    def sent(self, process: bytes, owner: bytes | None) -> None:
        """A message was sent from here: if we have the process in hand it hears at once, if nobody has it it is due."""
        if owner is None:
            self.claimer.wake()
        elif owner == self.incarnation.id:
            self.inbox.look(process)

    def _posted(self, commit: Commit) -> None:
        """A commit of ours has started children or sent messages: whoever of them we have in hand hears at once."""
        if commit.sends:
            self.look_at([message.process for message in commit.sends])
            self.claimer.soon()
        if commit.starts:
            children = [start.process for start in commit.starts]
            self.claimer.named([child.kind for child in children], [child.id for child in children])

    def look_at(self, processes: Sequence[bytes]) -> None:
        """Messages were sent to these processes, or they were taken: those in hand hear at once. None named: any."""
        if not processes:
            self.lease_check.doubt()
        for process in processes:
            if process in self.scheduler.instances:
                self.inbox.look(process)

    def taken(self, process: bytes, token: int | None) -> None:
        """What we wrote took a row from whoever held it: if that was us, let go at once, without the fence.

        Not if we have claimed it since, before we heard of what we wrote: then our token is later than the ``token`` of
        that. None means any.
        """
        instance = self.scheduler.instances.get(process)
        if instance is not None and (token is None or instance.process.token < token):
            self.scheduler.drop(instance)

    @property
    def busy(self) -> int:
        """How many processes are in hand, or about to be."""
        return len(self.scheduler.instances) + len(self.scheduler.starting)

    def has_room(self, kind: str) -> bool:
        """Whether this worker, short of something, may take a process of a kind in hand."""
        return self.busy < self.shortages.room(self.options.in_flight) and self.shortages.serves(kind)

    async def until_idle(self, seconds: float) -> None:
        """Work until nothing has been claimed for so many seconds, and nothing is in hand or waits for a place."""
        claimed, emptied = self.claimer.claimed_any, self.scheduler.emptied
        while True:
            try:
                await asyncio.wait_for(claimed.wait(), seconds)
            except TimeoutError:
                if self.claimer.suspects_waiting:
                    continue
                if not self.scheduler.instances:  # it is told of a claim before that has looked who died
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
        if self.scheduler.instances:
            log.info(
                "stopping: %d in hand, whose steps have up to %g s to finish", len(self.scheduler.instances), seconds
            )
        await self.claimer.loop.stop()
        if self.scheduler.instances:
            ends = [asyncio.create_task(emptied.wait()), asyncio.create_task(self._hurry.wait())]
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        for instance in list(self.scheduler.instances.values()):
            self.scheduler.release(instance)
        if self.claimer.unsure and not self._hurry.is_set():
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
        await self.quarantine.stop(hurry=self._hurry)
        for loop in (self.inbox.loop, self.lease_check.loop, self.heartbeat.guard, self.heartbeat.loop):
            await loop.stop()
        await self.scheduler.agent.close()
        self.watchdog.stop()

    async def retire(self) -> None:
        """Say goodbye to the store: whatever this incarnation still owned is free at once."""
        await self.store.retire(self.incarnation.id, None, died=False)

    async def _enlist(self, incarnation: bytes) -> None:
        offer = self.scheduler.unreadable.handover.offer = self.registry.offer(self.store.backend.schema)
        row = WorkerRow(incarnation, self.machine.name(), offer.encode())
        sent = self.machine.monotonic()
        await self.store.enlist(row, microseconds(self.options.lease_seconds))
        self.heartbeat.sure_until = sent + self.options.lease_seconds
        sent = self.machine.monotonic()
        self.time.heard(await self.store.now(), sent)

    def _fence(self, incarnation: bytes, hang: bytes | None) -> None:
        """The event loop turns again after it was blocked until the lease was lost: nothing in hand is ours now."""
        if incarnation != self.incarnation.id:
            return
        for instance in list(self.scheduler.instances.values()):
            self.telemetry.count("leases_lost")
            self.scheduler.drop(instance)
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
        for instance in list(self.scheduler.instances.values()):
            self.scheduler.drop(instance)
        incarnation = self.machine.new_id()
        try:
            await self._enlist_at_last(incarnation)
        finally:  # not before: what asks in its name until then would be told that it has ended
            self.incarnation.id, self.incarnation.lost = incarnation, False
        self.claimer.wake()

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
                await asyncio.sleep(self.options.beat_seconds)

    async def reconcile(self) -> int:
        """Free rows that this worker owns but does not hold: a claim whose answer never came (rule 5)."""
        pages, seen, freed = Pages(self.store, Overdue.OWNED, self.incarnation.id), set[bytes](), 0
        # Renewals move rows in hand behind all others: a page of nothing but those that were seen ends it.
        while not (owned := {row.id: row for row in await pages.next()}).keys() <= seen:
            seen |= owned.keys()
            held = self.scheduler.instances.keys() | self.scheduler.starting
            lost = [row for row in owned.values() if row.id not in held]
            freed += len(await self.context.write([transition.released(row, due_at=self.time.now()) for row in lost]))
            if not pages.more:
                break
        return freed
