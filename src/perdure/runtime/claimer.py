"""The claimer: claims due processes while there is room, and looks again exactly when the next one is due.

Where a claim has failed over what it would have read, a portion says how many processes the next one asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.errors import StoreError, StoreUnavailable
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.heartbeat import Incarnation
from perdure.runtime.release import without_the_dead
from perdure.runtime.scheduler import Scheduler
from perdure.runtime.turn_commit import rests
from perdure.store.base import Store

BREATH_SECONDS = 0.02
"""Histories are replayed for this long before the event loop gets its turn."""
SOON_SECONDS = 0.02
"""What is most likely no work for us is looked for after so long."""
RESTING_TIMES = 4
"""No worker has more than so many times its capacity in hand, however many wait for children."""


class Claimer:
    """One loop: claim, adopt, then wait for a hint, the next due time, or a second (the safety net).

    A hint may name who is due: then those are claimed without looking for others, until the next look is due.
    ``ended`` is called when the store says that this incarnation was ended; ``suspects`` is told whether suspects
    are due, and ``suspects_waiting`` says that some wait for a place in their queue.
    ``unsure`` says that a claim may have been applied whose rows were not taken in hand: ``reconcile`` frees them.
    """

    def __init__(self, incarnation: Incarnation, store: Store, registry: Registry, scheduler: Scheduler) -> None:
        self.incarnation = incarnation
        self.store = store
        self.registry = registry
        self.scheduler = scheduler
        self.capacity = limits.IN_FLIGHT_PROCESSES
        self.alone = False
        self.ended: Callable[[bytes], None] = lambda incarnation: None
        self.suspects: Callable[[bool, bool], None] = lambda due, waiting: None
        self.suspects_waiting = False
        self.loop = Loop("claim", self._tick, scheduler.committer.outage)
        self.reconcile: Callable[[], Awaitable[int]] | None = None
        self.claimed_any = asyncio.Event()
        self.unsure = False
        self._strayed = False
        self._next: int | None = None
        self._awaited: int | None = None  # the due time at which the next look is made, if it is not made before
        self._in_vain = 0
        self._named: dict[bytes, None] = {}
        self._asking: tuple[bytes, ...] = ()
        self._undue: dict[bytes, None] = {}
        self._all = True
        self._look_at = 0.0
        self._portion = Portion()
        self._not_before = 0.0  # after a claim of one alone has failed: no look at all that is due until then
        self._suspects_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._gives_way = False  # to suspects that wait for a place, which are told of it at the same time

    def wake(self) -> None:
        """Something may be due: look for all that is."""
        self._all = True
        self.loop.wake()

    def strayed(self) -> None:
        """A row is ours that we do not hold: free it at the next look, which is now."""
        self._strayed = True
        self.wake()

    def soon(self) -> None:
        """The same, but after a moment: most likely others have it, and are told of it."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(SOON_SECONDS, self._soon)

    def _soon(self) -> None:
        self._later = None
        self.wake()

    def named(self, kinds: Sequence[str], due: Sequence[bytes]) -> None:
        """Processes of these kinds are due: claim those named, or look for all if none is."""
        ours = {kind for kind, _ in self.registry.hosted}.intersection(kinds)
        if not ours:
            return
        if self._gives_way and not due:
            self._gives_way = False
            self.soon()
            return
        if due and not self.alone and ours.issubset(kind for kind, _ in self._unlimited()):
            self._named |= dict.fromkeys(
                id for id in due if id not in self.scheduler.instances and id not in self._asking
            )
            self._all = self._all or len(self._named) > limits.CLAIM_ROWS
        else:
            self._all = True
        if self._all or self._named:
            self.loop.wake()

    def undue(self, ids: Iterable[bytes]) -> None:
        """These are at rest and not due, and must go on here: claim each of them."""
        self._undue |= dict.fromkeys(ids)
        if self._undue:
            self.loop.wake()

    def waiting(self, due_at: int) -> None:
        """A row was let go here that is due at ``due_at``: look again by then."""
        if self._next is None or due_at < self._next:
            self._next = due_at
            self.loop.wake()

    async def _tick(self) -> float:
        if self.scheduler.draining or not self.registry.hosted or self.incarnation.lost:
            return limits.POLL_SECONDS
        room = self._room()
        if room <= 0:
            return await self._while_full()
        apart = self._not_before - self.scheduler.time.monotonic()
        if apart > 0 and not self._named:
            return apart
        if (self.unsure or self._strayed) and self.reconcile is not None:
            self._strayed, strayed = False, self._strayed
            try:
                await self.reconcile()
            except StoreError:
                self._strayed = strayed
                raise
        self.unsure = True
        if self._undue:
            return await self._claim_undue(room)
        if self._named and (apart > 0 or (not self._all and self.scheduler.time.monotonic() < self._look_at)):
            return await self._claim_named(room)
        return await self._look(room)

    async def look(self) -> int | None:
        """Claim of all that is due, now; the answer is when something is due next."""
        if not self.registry.hosted:
            return None
        await self._look(max(0, self._room()))
        return self._next

    async def _look(self, room: int) -> float:
        """Claim of all that is due, and say when to look again."""
        self._named.clear()
        self._all = False
        answers: list[ClaimAnswer] = []
        full = False
        asked = 0
        try:
            for hosted, most in self._offers(room):
                asked = min(most, self._portion.rows)
                answers.append(await self.claim(hosted, asked))
                full = full or len(answers[-1].claimed) == asked
                if self.alone and answers[-1].claimed:
                    break
        except Exception as error:
            return self._failed(asked, error)
        self.unsure = False
        self._portion.succeeded()
        self._tell(answers)
        wait = 0.0 if full else self._until(answers)
        self._look_at = self.scheduler.time.monotonic() + wait
        return wait

    def _failed(self, asked: int, error: Exception) -> float:
        """Seconds until fewer are asked for, if that may help; what was taken and not read is freed before."""
        self._all = True
        if isinstance(error, StoreError):
            self.scheduler.telemetry.count("store_errors")
        if not is_of_what_was_read(error):
            raise error
        wait = self._portion.failed(asked, error)
        self._not_before = self.scheduler.time.monotonic() + wait
        return wait

    async def _while_full(self) -> float:
        """Take nothing, but look once a second whether suspects are due: they take no room here."""
        if self.alone:
            return limits.POLL_SECONDS
        if self.scheduler.time.monotonic() >= self._suspects_at:
            self._suspects_at = self.scheduler.time.monotonic() + limits.POLL_SECONDS
            self._tell([await self.claim(self.registry.hosted, 0)])
        return 0.01

    def _tell(self, answers: Sequence[ClaimAnswer]) -> None:
        """Say whether suspects are due. Once something of ours has begun, the next free place is theirs to try for."""
        self.suspects_waiting = any(answer.suspects_waiting for answer in answers)
        self._gives_way = self.suspects_waiting and not self.alone and any(answer.claimed for answer in answers)
        if not self.alone:
            self.suspects(any(answer.suspects for answer in answers), self.suspects_waiting)

    async def _claim_named(self, room: int) -> float:
        """Claim those that hints have named; others may have been quicker, which the answer does not tell."""
        self._asking = asked = tuple(islice(self._named, min(room, self._portion.rows)))
        for id in self._asking:
            del self._named[id]
        try:
            answer = await self.claim(self._unlimited(), len(asked), asked)
        except Exception as error:
            return self._failed(len(asked), error)
        finally:
            self._asking = ()
        self.unsure = False
        self._all = self._all or answer.next_due_at is not None
        return 0.0 if self._all else max(0.0, self._look_at - self.scheduler.time.monotonic())

    async def _claim_undue(self, room: int) -> float:
        """Claim one after the other of those that are not due."""
        try:
            for id in list(islice(self._undue, room)):
                await self.claim(self._unlimited(), 1, only=id)
                del self._undue[id]
        except Exception as error:
            return self._failed(1, error)
        self.unsure = False
        return 0.0

    def _room(self) -> int:
        """How many more processes may be taken in hand: those that only wait for children leave room to these.

        Suspects come in one group, and nobody joins them.
        """
        instances = self.scheduler.instances
        if self.alone and instances:
            return 0
        capacity = self.scheduler.agent.shortages.room(self.capacity)
        room = capacity - len(instances)
        if room <= 0:
            resting = sum(map(rests, instances.values()))
            room = min(room + resting, RESTING_TIMES * capacity - len(instances))
        return room

    def _offers(self, room: int) -> Iterator[tuple[tuple[tuple[str, str], ...], int]]:
        """What to claim, and how much of it: each limited queue by itself, the rest together."""
        limited = {kind: queue.at_most for kind, queue in self.registry.queues.items() if queue.at_most is not None}
        hosted = self._hosted()
        yield self._unlimited(), room
        for kind, most in limited.items():
            held = sum(instance.process.kind == kind for instance in self.scheduler.instances.values())
            if held < most:
                yield tuple(pair for pair in hosted if pair[0] == kind), min(room, most - held)

    def _unlimited(self) -> tuple[tuple[str, str], ...]:
        """What is hosted here without a limit of this worker's own."""
        hosted, queues = self._hosted(), self.registry.queues
        if not self.registry.limited:
            return hosted
        return tuple(pair for pair in hosted if pair[0] not in queues or queues[pair[0]].at_most is None)

    def _hosted(self) -> tuple[tuple[str, str], ...]:
        """What is hosted here, but for what this worker cannot serve now."""
        hosted, shortages = self.registry.hosted, self.scheduler.agent.shortages
        handover = self.scheduler.unreadable.handover
        if handover.lets_any_by:
            hosted = tuple(pair for pair in hosted if not handover.lets_by(pair))
        if not shortages.unserved:
            return hosted
        return tuple(pair for pair in hosted if shortages.serves(pair[0]))

    def parted(self) -> None:
        """A process was let go: a limited queue may have room again, or all suspects of a group are gone."""
        if self.registry.limited or (self.alone and not self.scheduler.instances):
            self.loop.wake()

    def _until(self, answers: Sequence[ClaimAnswer]) -> float:
        """Seconds until the next look. What is due and was not given to us is locked by somebody: ask ever less.

        So do we where the time has come by our clock, and not by the store's: that one was set back, and stands still.
        """
        awaited = self._awaited if self.scheduler.time.monotonic() >= self._look_at else None
        self._next = min((one.next_due_at for one in answers if one.next_due_at is not None), default=None)
        self._awaited = None
        if self._next is None:
            return limits.POLL_SECONDS
        wait = (self._next - self.scheduler.time.now()) / 1_000_000
        early = wait <= 0 or self._next == awaited
        self._in_vain = self._in_vain + 1 if early and not any(one.claimed for one in answers) else 0
        if wait < limits.POLL_SECONDS:
            self._awaited = self._next
        return min(limits.POLL_SECONDS, max(wait, 0.001 * 2.0 ** min(self._in_vain, 10)))

    async def claim(
        self,
        hosted: tuple[tuple[str, str], ...],
        limit: int,
        among: tuple[bytes, ...] = (),
        only: bytes | None = None,
    ) -> ClaimAnswer:
        """Claim up to ``limit`` processes of these kinds and versions, and take them in hand.

        ``among`` some that are named, or ``only`` one, due or not.
        """
        sent = self.scheduler.time.monotonic()
        claim = Claim(
            self.incarnation.id, hosted, limit, self.scheduler.lease, alone=self.alone, among=among, only=only
        )
        answer = await self.store.claim(claim)
        self.scheduler.telemetry.took("claim", self.scheduler.time.monotonic() - sent)
        self.scheduler.time.heard(answer.now, sent)
        if answer.schema_ahead:
            self.scheduler.unreadable.handover.saw(answer.schema_ahead)
        if not answer.alive:
            self.ended(claim.worker)
        if claim.worker != self.incarnation.id or self.incarnation.lost:
            return answer  # others have ended it since: what it was given they free
        if answer.claimed:
            self.claimed_any.set()
        breath = self.scheduler.time.monotonic() + BREATH_SECONDS
        for claimed in await without_the_dead(self.store, self.scheduler, answer.claimed):
            self.scheduler.adopt(claimed, sent)
            if self.scheduler.time.monotonic() > breath:
                await asyncio.sleep(0)  # long histories: steps, beats and commits go on meanwhile
                breath = self.scheduler.time.monotonic() + BREATH_SECONDS
        return answer


log = logger("worker")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0


def is_of_what_was_read(error: Exception) -> bool:
    """Whether a claim may succeed with fewer rows: the store is there, and did not hand over what was asked for."""
    return isinstance(error, MemoryError) or (isinstance(error, StoreError) and not isinstance(error, StoreUnavailable))


class Portion:
    """Half as many after each claim that failed, at last one; twice as many after each that did not.

    If one alone fails, the time until the next try grows: nothing is gained by haste.
    """

    def __init__(self) -> None:
        self.rows = limits.CLAIM_ROWS
        self._in_vain = 0
        self._said = False

    def succeeded(self) -> None:
        """A look at all that is due has been answered."""
        self._in_vain = 0
        self._said = self._said and self.rows < limits.CLAIM_ROWS
        self.rows = min(limits.CLAIM_ROWS, 2 * self.rows)

    def failed(self, asked: int, error: Exception) -> float:
        """A claim of so many has failed; how many seconds to wait until all that is due is looked at again."""
        whole = self.rows == limits.CLAIM_ROWS
        self.rows = max(1, asked // 2)
        if asked > 1:
            if whole:
                log.warning("a claim of %d processes has failed, and fewer are asked for: %.500s", asked, error)
            return 0.0
        self._in_vain += 1
        if not self._said:
            self._said = True
            log.error(
                "a claim of a single process fails (%s: %.500s); it is tried again, ever less often, and what "
                "is due behind it waits. `perdure ps` shows what is due: terminate what cannot be read, or raise "
                "what the database or this worker may use",
                type(error).__name__,
                error,
            )
        return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._in_vain - 1, 10))
