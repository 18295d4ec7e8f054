"""The claimer: claims due processes while there is room, and looks again exactly when the next one is due.

After a claim has failed because of the rows that it read, or was slow, a portion says how many the next one asks for
(``claim_portion.py``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from perdure import limits
from perdure.errors import StoreError
from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.names import id_text
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.adoption import adopt
from perdure.runtime.claim_kinds import ClaimKinds
from perdure.runtime.claim_portion import Portion, is_of_what_was_read
from perdure.runtime.events import HeldBack, WorkerEvents
from perdure.runtime.parts import WorkerParts
from perdure.runtime.release import without_the_dead
from perdure.runtime.scheduler import Scheduler
from perdure.runtime.turn_commit import rests
from perdure.turns.current import staged

log = logger("worker")

BREATH_SECONDS = 0.02
"""Replays go on for this long before the event loop has its turn, or half as long again where that ends them."""
SOON_SECONDS = 0.02
"""The delay of a look that most likely finds no work for this worker."""
DONE = object()
"""What stands in for the next portion of a replay that has none."""
RESTING_TIMES = 4
"""A worker holds at most this many times its capacity, however many of its processes wait for children."""


class Claimer:
    """One loop: claim, adopt, then wait for a hint, the next due time, or a second (the safety net).

    A hint may name the due processes: the claimer claims these alone, and looks for others when the next look is due.
    ``suspects_waiting`` says that some suspects wait for a place in their queue.
    ``unsure`` says that a claim may have been applied although this worker does not hold its rows: they are freed.
    """

    def __init__(self, parts: WorkerParts, scheduler: Scheduler, events: WorkerEvents, held_back: HeldBack) -> None:
        self.incarnation = parts.incarnation
        self.store = parts.store
        self.registry = parts.registry
        self.scheduler = scheduler
        self.events = events
        self._held_back = held_back
        self._kinds = ClaimKinds(parts.registry, scheduler)
        self.alone = parts.alone
        self.capacity = limits.QUARANTINE_PROCESSES if parts.alone else parts.options.in_flight
        self.suspects_waiting = False
        self.loop = Loop("claim", self._tick, scheduler.committer.outage)
        self.claimed_any = asyncio.Event()
        self.unsure = False
        self._asked: asyncio.Future[ClaimAnswer] | None = None
        self.figures = parts.figures
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
        self._not_before = 0.0  # after a claim of a single process has failed: no look at all that is due until then
        self._suspects_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._gives_way = False  # to suspects that wait for a place: their workers get the same hint as this one

    def wake(self) -> None:
        """Something may be due: look for all that is."""
        self._all = True
        self.loop.wake()

    def strayed(self) -> None:
        """In the store this worker owns a row that it does not hold: free it at the next look, which is now."""
        self._strayed = True
        self.wake()

    def soon(self) -> None:
        """Look for all that is due after a moment: most likely other workers got the hint too, and take what is due."""
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
        if due and not self.alone and ours.issubset(kind for kind, _ in self._kinds.unlimited()):
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
        """This worker has released a row that is due at ``due_at``: look again by then."""
        if self._next is None or due_at < self._next:
            self._next = due_at
            self.wake()

    async def _tick(self) -> float:
        bringing = self.scheduler.bringing
        if self.scheduler.draining or not self.registry.hosted or self.incarnation.lost:
            bringing.turn_all_away()
            return limits.POLL_SECONDS
        room = self._room()
        if room <= 0:
            bringing.turn_all_away()
            return await self._while_full()
        apart = self._not_before - self.scheduler.time.monotonic()
        if apart > 0 and not self._named:
            bringing.turn_all_away()
            return apart
        if self.unsure or self._strayed:
            self._strayed, strayed = False, self._strayed
            try:
                await self.events.reconcile()
            except StoreError:
                self._strayed = strayed
                raise
        if self._undue:
            wait = await self._claim_undue(room)
            if wait > 0:
                return wait
            look = self._look_at - self.scheduler.time.monotonic()
            if look > 0 and not (self._all or self._named):
                return 0.0 if self._undue else look
            room = self._room()  # what is due has its turn too, however much is claimed that is not
            if room <= 0:
                return 0.0
        wait = await self._claim_due(room, apart)
        return 0.0 if self._undue else wait

    async def _claim_due(self, room: int, apart: float) -> float:
        """Claim what hints have named, or from all that is due; return the seconds until the next look."""
        self.unsure = True
        if self._named and (apart > 0 or (not self._all and self.scheduler.time.monotonic() < self._look_at)):
            return await self._claim_named(room)
        return await self._look(room)

    async def look(self) -> int | None:
        """Claim from all that is due, now, and return when something is due next."""
        if not self.registry.hosted:
            return None
        await self._look(max(0, self._room()))
        return self._next

    async def _look(self, room: int) -> float:
        """Claim from all that is due, and return the seconds until the next look."""
        self._named.clear()
        self._all = False
        answers: list[ClaimAnswer] = []
        full = False
        asked = 0
        try:
            for hosted, most in self._kinds.in_turn(room, self._room):
                asked = min(most, self._most())
                answers.append(await self.claim(hosted, asked))
                full = full or len(answers[-1].claimed) == asked
                if self.alone and answers[-1].claimed:
                    break
            for hosted, most, only in self._held_back.offers():
                room = self._room()
                if room <= 0:
                    break
                asked = min(most, room, self._most())
                answers.append(await self.claim(hosted, asked, only=only, offered=True))
        except Exception as error:
            return self._failed(asked, error)
        self.unsure = False
        self._portion.succeeded()
        self._tell(answers)
        wait = 0.0 if full or self._room() <= 0 else self._until(answers)
        self._look_at = self.scheduler.time.monotonic() + wait
        return wait

    def _failed(self, asked: int, error: Exception) -> float:
        """Seconds until a smaller claim, if one may help, else raise; rows claimed but not read are freed before it."""
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
        """Report whether suspects are due. Once this worker has claimed something, suspects try for the next place."""
        self.suspects_waiting = any(answer.suspects_waiting for answer in answers)
        self._gives_way = self.suspects_waiting and not self.alone and any(answer.claimed for answer in answers)
        if not self.alone:
            self.events.suspects(any(answer.suspects for answer in answers), self.suspects_waiting)

    async def _claim_named(self, room: int) -> float:
        """Claim those that hints have named; the answer does not tell which of them other workers took first."""
        self._asking = asked = tuple(islice(self._named, min(room, self._most())))
        for id in self._asking:
            del self._named[id]
        try:
            answer = await self.claim(self._kinds.unlimited(), len(asked), asked)
        except Exception as error:
            return self._failed(len(asked), error)
        finally:
            self._asking = ()
        self.unsure = False
        self._all = self._all or answer.next_due_at is not None
        return 0.0 if self._all else max(0.0, self._look_at - self.scheduler.time.monotonic())

    async def _claim_undue(self, room: int) -> float:
        """Claim the processes that are not due: those that rest in the cache together, the others one after the other.

        So one that cannot be read keeps no other waiting.
        """
        self.unsure = True
        cached = self.scheduler.cache.rows
        resting = list(islice((id for id in self._undue if id in cached), min(room, self._most())))
        if resting:
            return await self._claim_resting({id: cached[id] for id in resting})
        for id in list(islice(self._undue, room)):
            del self._undue[id]
            if self.scheduler.bringing.turn_away((id,)):
                continue  # it has left the cache: the call is sent, and makes it due
            try:
                await self.claim(self._kinds.unlimited(), 1, only=id)
            except Exception as error:
                if not is_of_what_was_read(error):
                    self._undue[id] = None
                    raise
                if isinstance(error, StoreError):
                    self.scheduler.telemetry.count("store_errors")
                log.error("process %s cannot be claimed (%s: %.500s)", id_text(id), type(error).__name__, error)
                return 0.0  # if it was claimed and not read, it is freed before anything else is claimed
        self.unsure = False
        return 0.0

    async def _claim_resting(self, rows: Mapping[bytes, tuple[int, int]]) -> float:
        """Claim processes that rest in the cache, with these rows. One that has moved since is there in vain."""
        for id in rows:
            del self._undue[id]
        cache, asked = self.scheduler.cache, rows
        try:
            await self.claim(self._kinds.unlimited(), len(rows), resting=rows)
            self.unsure = False
            asked = {id: row for id, row in rows.items() if cache.rows.get(id) == row}
            for id in asked:
                cache.evict(id)
        except Exception as error:
            return self._failed(len(rows), error)
        finally:
            turned = set(self.scheduler.bringing.turn_away(rows))
            self._undue |= dict.fromkeys(id for id in asked if id not in turned)
        return 0.0

    def _most(self) -> int:
        """How many rows one claim asks for: other living workers get their share of a backlog."""
        share = limits.CLAIM_ROWS // (1 + len(self.events.offers()))
        return min(self._portion.rows, max(share, limits.CLAIM_SHARE_ROWS))

    def _room(self) -> int:
        """How many more processes to claim: those that only wait for children leave room for their children.

        Suspects are claimed as one group, which no other process joins.
        """
        instances = self.scheduler.instances
        if self.alone and instances:
            return 0
        capacity = self.scheduler.shortages.room(self.capacity)
        room = capacity - len(instances)
        if room <= 0:
            resting = sum(map(rests, instances.values()))
            room = min(room + resting, RESTING_TIMES * capacity - len(instances))
        return room

    def parted(self) -> None:
        """A process was let go: a limited queue may have room again, or all suspects of a group are gone."""
        if self.registry.limited or (self.alone and not self.scheduler.instances):
            self.wake()

    def _until(self, answers: Sequence[ClaimAnswer]) -> float:
        """Seconds until the next look: ever more of them while a due row is locked by another transaction.

        The same where a row is due by our clock and not by the store's, which was set back and stands still.
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
        offered: bool = False,
        resting: Mapping[bytes, tuple[int, int]] | None = None,
    ) -> ClaimAnswer:
        """Claim up to ``limit`` processes of these kinds and versions, and hold them.

        ``among`` restricts the claim to some processes, ``only`` to a single one, due or not. ``offered`` says that
        they are of one kind, which is held back: they are told of before they are held, since some do not stay.
        ``resting`` are the rows of some that are in the cache: these are claimed, due or not, if they stand so.
        """
        sent = self.scheduler.time.monotonic()
        claim = Claim(
            self.incarnation.id, hosted, limit, self.scheduler.lease, alone=self.alone,
            among=among or tuple(resting or ()), only=only, resting=resting is not None,
            cached=self.scheduler.cache.rows if resting is None else resting,
        )  # fmt: skip
        self._asked = asyncio.ensure_future(self.store.claim(claim))
        answer = await asyncio.shield(self._asked)
        took = self.scheduler.time.monotonic() - sent
        self.scheduler.telemetry.took("claim", took)
        self._portion.took(len(answer.claimed), took / self.scheduler.lease_seconds)
        self.scheduler.time.heard(answer.now, sent)
        self.figures.polled_at = answer.now
        if answer.schema_ahead:
            self.scheduler.unreadable.handover.saw(answer.schema_ahead)
        if not answer.alive:
            self.events.retired(claim.worker)
        if claim.worker != self.incarnation.id or self.incarnation.lost:
            return answer  # this incarnation has ended meanwhile, and the rows that it was given are freed with it
        if answer.claimed:
            self.claimed_any.set()
        mine = await without_the_dead(self.scheduler, answer.claimed)
        if claim.worker != self.incarnation.id or self.incarnation.lost:
            return answer
        if offered:
            self._held_back.claimed(hosted[0][0], mine)
        await self._adopt([adopt(self.scheduler, claimed, sent) for claimed in mine])
        return answer

    async def answered(self) -> None:
        """Wait for the answer to the last claim: one that nobody awaits any more may still be carried out."""
        if (asked := self._asked) is not None:
            try:
                await asyncio.wait([asked])
            finally:
                asked.cancel()  # nobody waits for it any longer

    async def _adopt(self, claimed: Iterable[Iterator[None]]) -> None:
        """Hold what was claimed: long histories by turns, a portion each, and with a breath for the event loop."""
        left = deque(claimed)
        while left:
            breath = self.scheduler.time.monotonic() + BREATH_SECONDS
            with staged():
                more, done = False, 0
                while left and not more and (self.scheduler.time.monotonic() <= breath or len(left) * 2 <= done):
                    one, done = left.popleft(), done + 1
                    if more := next(one, DONE) is not DONE:
                        left.append(one)
            if left:
                await asyncio.sleep(0)  # steps, beats and commits go on meanwhile
