"""A worker: one OS process of ours. It hosts a scheduler with its agent, and a supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.clock import microseconds
from perdure.errors import PerdureError
from perdure.kernel import transition
from perdure.kernel.commit import Commit
from perdure.kernel.message import DELIVERED, Message, SendAnswer
from perdure.kernel.names import id_text
from perdure.kernel.worker import Beat, WorkerRow
from perdure.logs import logger
from perdure.runtime import gc_tuning
from perdure.runtime.alert_rules import AlertRuleWatch
from perdure.runtime.claimer import Claimer
from perdure.runtime.events import Ends, WorkerEvents
from perdure.runtime.heartbeat import Heartbeat, LeaseCheck
from perdure.runtime.inbox_reader import InboxReader
from perdure.runtime.outages import OutageWatch
from perdure.runtime.parts import WorkerParts
from perdure.runtime.quarantine import Quarantine
from perdure.runtime.room import Room
from perdure.runtime.scheduler import Scheduler
from perdure.runtime.sinks import SinkDeliveries
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps.context import Pages, SweepContext
from perdure.runtime.watchdog import Watchdog, Witness
from perdure.store.base import Overdue

if TYPE_CHECKING:
    from perdure.kernel.note import Note
    from perdure.kernel.soundness import Finding
    from perdure.runtime.instance import Instance

log = logger("worker")


class Worker:
    """Everything that one worker runs, started and stopped together.

    ``ends`` is told of every process that ended, was parked or was let go here. ``worn_out`` is set when the worker is
    short of a resource and does not recover: then it should be stopped and replaced.
    """

    def __init__(self, parts: WorkerParts, ends: Ends) -> None:
        self.parts = parts
        self.store = parts.store
        self.registry = parts.registry
        self.machine = machine = parts.machine
        self.telemetry = telemetry = parts.telemetry
        self.options = options = parts.options
        self.time = parts.time
        self.incarnation = parts.incarnation
        self.outages = OutageWatch(parts, ends)
        self.ends: Ends = self.outages if parts.outages else ends
        events = Dispatch(self)
        self.scheduler = Scheduler(parts, events)
        self.shortages = self.scheduler.shortages
        self.inbox = InboxReader(parts.store, self.scheduler, events)
        self.claimer = Claimer(parts, self.scheduler, events, self.outages)
        self.heartbeat = Heartbeat(parts, self.scheduler, events)
        self.lease_check = LeaseCheck(parts, self.scheduler, events)
        self.context = SweepContext(parts, events)
        self.supervisor = Supervisor(self.context)
        self.sinks = SinkDeliveries(parts)
        self.alert_rules = AlertRuleWatch(parts)
        self.quarantine = Quarantine(parts.store.url, parts.registry, options, machine, telemetry, parts.policies)
        witness = Witness(parts.store.url, machine)
        self.watchdog = Watchdog(self.heartbeat, witness, machine, telemetry, self._fence, exits=options.exit_when_hung)
        self.alone, self._calm = parts.alone, False
        self._hurry, self.worn_out = asyncio.Event(), asyncio.Event()
        self.room = Room()
        self._ending: asyncio.Task[None] | None = None
        self._stops_by = 0.0

    async def start(self) -> None:
        """Enlist, then begin to beat, to claim and to sweep."""
        await self._enlist(self.incarnation.id)
        self.scheduler.agent.transactional_steps.open()
        self._calm = not self.machine.simulated
        if self._calm:
            gc_tuning.calm()
        for loop in (self.heartbeat.loop, self.heartbeat.guard, self.lease_check.loop, self.inbox.loop):
            loop.start()
        self.supervisor.start(alone=self.alone)
        if not self.alone:
            self.quarantine.loop.start()
            self.sinks.loop.start()
            await self.outages.begin(self.claimer, self.shortages)
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

    def handed(self, message: Message, answer: SendAnswer) -> bool:
        """A message was sent from here: hand it to its process if that is held here; false if it is to be read."""
        instance = self.scheduler.instances.get(answer.process)
        if instance is None or answer.owner != self.incarnation.id or answer.verdict is not DELIVERED:
            return False
        return self.inbox.handed_over(instance, replace(message, number=answer.number, at=answer.now))

    def sent(self, process: bytes, owner: bytes | None) -> None:
        """A message was sent from here: read it at once if this worker holds the process, claim if no worker does."""
        if owner is None:
            self.claimer.wake()
        elif owner == self.incarnation.id:
            self.inbox.look(process)

    def look_at(self, processes: Sequence[bytes]) -> None:
        """Messages were sent to these processes, or commands took them: look at those held here. None named: at any."""
        if not processes:
            self.lease_check.doubt()
        for process in processes:
            if process in self.scheduler.instances:
                self.inbox.look(process)

    def taken(self, process: bytes, token: int | None) -> None:
        """A commit from here took a row from its owner: if this worker was the owner, drop the process at once.

        Keep it if this worker has claimed the row again before the commit was answered: its token is then not below
        ``token``, which the commit has drawn. None drops it in any case.
        """
        instance = self.scheduler.instances.get(process)
        if instance is not None and (token is None or instance.process.token < token):
            self.scheduler.drop(instance)

    @property
    def busy(self) -> int:
        """How many processes this worker holds, or is about to hold."""
        return len(self.scheduler.instances) + len(self.scheduler.starting)

    def takes(self, kind: str) -> bool:
        """Whether this worker would start a process of that kind as its own: it has room, and stays.

        A process of a kind with limits is claimed, once it has a place among the processes of its kind.
        """
        scheduler = self.scheduler
        held = len(scheduler.instances) + len(scheduler.starting)
        if scheduler.draining or held >= self.options.in_flight or self.alone or kind in self.registry.limited_kinds:
            return False
        shortages = self.shortages
        if not shortages.active:
            return True
        return held < shortages.room(self.options.in_flight) and shortages.serves(kind)

    async def has_room(self, kind: str) -> bool:
        """Wait a moment for some processes held here to end; whether they have, and one of that kind could begin.

        Many that are started at once wait for that as long as it goes quickly: it saves each of them a claim. Other
        workers, if there are any, claim them at once instead.
        """
        if kind in self.registry.limited_kinds:
            return False
        return await self.room.found(self._alone_at_work) and self.takes(kind)

    def _alone_at_work(self) -> bool:
        """Whether turns of processes held here are being written, and no other worker could run what waits."""
        return not self.scheduler.committer.idle and not self.context.offers()

    async def until_idle(self, seconds: float) -> None:
        """Work until nothing has been claimed for so many seconds, and no process is held or waits for a place."""
        claimed, emptied = self.claimer.claimed_any, self.scheduler.emptied
        while True:
            try:
                await asyncio.wait_for(claimed.wait(), seconds)
            except TimeoutError:
                if self.claimer.suspects_waiting:
                    continue
                if not self.scheduler.instances:  # ``claimed`` is set before the claim has looked for dead owners
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
                "stopping: the steps of %d processes have up to %g s to finish", len(self.scheduler.instances), seconds
            )
        await self.claimer.loop.stop()
        ends = [asyncio.create_task(self._until_empty(emptied)), asyncio.create_task(self._hurry.wait())]
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        for instance in list(self.scheduler.instances.values()):
            self.scheduler.release(instance)
        if self.claimer.unsure and not self._hurry.is_set():
            try:
                await self.reconcile()
            except PerdureError:
                pass  # the store is away: the rows are freed when this incarnation is retired or found silent

    async def _until_empty(self, emptied: asyncio.Event) -> None:
        """Wait for the last claim, whose rows would be owned from then on, and until no process is held."""
        await self.claimer.answered()
        if self.scheduler.instances:
            await emptied.wait()

    async def stop(self, seconds: float) -> None:
        """Drain, and end all loops but the watchdog, which goes on until the engine is closed."""
        self._stops_by = self.machine.monotonic() + seconds
        if self._calm:
            self._calm = False
            gc_tuning.restore()
        await self.drain(seconds)
        if self._ending is not None:
            self._ending.cancel()
        await self.outages.stop()
        await self.sinks.stop()
        await self.alert_rules.loop.stop(seconds, self._hurry)
        await self.supervisor.stop()
        await self.quarantine.stop(hurry=self._hurry)
        for loop in (self.inbox.loop, self.lease_check.loop, self.heartbeat.guard, self.heartbeat.loop):
            await loop.stop()
        await self.scheduler.agent.close()

    async def retire(self) -> None:
        """Retire this incarnation: its rows are free at once, or later if the store is away. Then tell all alerts."""
        with suppress(PerdureError):  # then no heartbeat follows, and the leases lapse
            await self.store.retire(self.incarnation.id, None, died=False)
        await self.parts.alerts.close(max(0.0, self._stops_by - self.machine.monotonic()), self._hurry)

    async def _enlist(self, incarnation: bytes) -> None:
        offer = self.scheduler.unreadable.handover.offer = self.registry.offer(self.store.backend.schema)
        row = WorkerRow(incarnation, self.machine.name(), offer.encode())
        sent = self.machine.monotonic()
        await self.store.enlist(row, microseconds(self.options.lease_seconds))
        self.heartbeat.sure_until = sent + self.options.lease_seconds
        sent = self.machine.monotonic()
        self.time.heard(await self.store.now(), sent)

    def _fence(self, incarnation: bytes, hang: bytes | None) -> None:
        """Drop all: the event loop runs again after it was blocked until the lease was lost, so nothing is ours."""
        if incarnation != self.incarnation.id:
            return
        for instance in list(self.scheduler.instances.values()):
            self.telemetry.count("leases_lost")
            self.scheduler.drop(instance)
        self.incarnation.lost, self.incarnation.hang = True, hang
        self.retired(incarnation)

    def retired(self, incarnation: bytes) -> None:
        """Another worker has ended this incarnation: drop everything held and go on under a new id (rule 11).

        The answer to a request of an earlier incarnation says nothing about the present one.
        """
        if incarnation == self.incarnation.id and (self._ending is None or self._ending.done()):
            self._ending = asyncio.create_task(self._renew(), name="perdure new incarnation")

    async def _renew(self) -> None:
        self.telemetry.count("incarnations_renewed")
        log.warning("worker %s was ended by others; it goes on as a new incarnation", id_text(self.incarnation.id))
        self.incarnation.lost = True  # what it is given from now on is not held: it may be another worker's by then
        self.scheduler.eager.void()
        for instance in list(self.scheduler.instances.values()):
            self.scheduler.drop(instance)
        incarnation = self.machine.new_id()
        try:
            await self._enlist_at_last(incarnation)
        finally:  # not before: the store would answer a request in its name that it has ended
            self.incarnation.id, self.incarnation.lost = incarnation, False
        self.claimer.wake()

    async def _enlist_at_last(self, incarnation: bytes) -> None:
        while True:
            try:
                if self.incarnation.hang is not None:  # the worker that frees our rows needs this evidence
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
        # A renewal moves a held row behind all others: a page of rows that were all seen before ends the loop.
        while not (owned := {row.id: row for row in await pages.next()}).keys() <= seen:
            seen |= owned.keys()
            held = self.scheduler.instances.keys() | self.scheduler.starting
            lost = [row for row in owned.values() if row.id not in held]
            freed += len(await self.context.write([transition.released(row, due_at=self.time.now()) for row in lost]))
            if not pages.more:
                break
        return freed


class Dispatch:
    """Passes each event of a worker's roles on to the role, or the waiter, that acts on it: see WorkerEvents."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.ended = worker.ends.ended
        self.answered = worker.ends.answered

    def parted(self, id: bytes) -> None:
        """There may be room for another."""
        self._worker.ends.parted(id)
        self._worker.claimer.parted()
        if self._worker.room.wanted:
            self._worker.room.left(self._worker.options.in_flight - self._worker.busy)

    def unheard(self, instance: Instance) -> None:
        """The inbox reader reads its messages."""
        self._worker.inbox.want(instance)

    def in_doubt(self, processes: Sequence[bytes]) -> None:
        """Their leases are renewed, which tells whether they are still ours."""
        self._worker.lease_check.doubt(processes)

    def posted(self, commit: Commit) -> None:
        """Receivers that are held here hear at once, and children are claimed."""
        worker = self._worker
        if commit.sends:
            worker.look_at([message.process for message in commit.sends])
            worker.claimer.soon()
        if commit.starts:
            children = [start.process for start in commit.starts]
            worker.claimer.named([child.kind for child in children], [child.id for child in children])

    def sent(self, process: bytes, owner: bytes | None) -> None:
        """It is heard at once if the process is ours."""
        self._worker.sent(process, owner)

    def due(self, at: int) -> None:
        """It is claimed by then."""
        self._worker.claimer.waiting(at)

    def strayed(self) -> None:
        """It is freed at the next look."""
        self._worker.claimer.strayed()

    def taken(self, process: bytes, token: int | None) -> None:
        """If it was ours, it is let go."""
        self._worker.taken(process, token)

    def undue(self, processes: Iterable[bytes]) -> None:
        """They are claimed one by one."""
        self._worker.claimer.undue(processes)

    def retired(self, incarnation: bytes) -> None:
        """The worker goes on under a new id."""
        self._worker.retired(incarnation)

    def suspects(self, due: bool, waiting: bool) -> None:
        """They run in quarantine."""
        self._worker.quarantine.wanted(due, waiting)

    def noted(self, notes: Mapping[str, Note], now: int) -> None:
        """Kinds may be held, and rules may be due."""
        if not self._worker.alone:
            self._worker.outages.seen(notes, now)
            self._worker.alert_rules.seen(notes)

    def found(self, finding: Finding) -> None:
        """It is logged."""
        logger("recovery").warning("%s: %s", finding.law, finding.text)

    def worn_out(self, what: str) -> None:
        """The program that started this worker should restart it."""
        self._worker.worn_out.set()

    def steady(self) -> bool:
        """Whether no beat has failed for a while."""
        return self._worker.heartbeat.steady()

    def offers(self) -> Sequence[bytes]:
        """The offers of the other workers, as last read."""
        return self._worker.context.offers()

    async def reconcile(self) -> int:
        """See Worker.reconcile."""
        return await self._worker.reconcile()


if TYPE_CHECKING:
    _events: type[WorkerEvents] = Dispatch
