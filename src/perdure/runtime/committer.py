"""The committer: one per engine; records that arrive while a transaction is in flight go into the next one.

There is no timer and no window: when nothing is in flight, a record is written at once (group commit).
A batch whose outcome is unknown is sent again, the same records in the same order: every door of the store applies
a record at most once (rule 5). A batch that the database refuses is halved until the guilty record stands alone
(rule 6). A record whose row was locked is set aside and tried again; messages to the same process line up behind
it, so that they arrive in the order of sending. Starts and sends are refused while too many of them wait; commits are
not: each process that is held has at most one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from perdure import limits
from perdure.clock import SECOND, Computer
from perdure.errors import BadRecord, Overloaded, StoreError, StoreUnavailable
from perdure.futures import OnAnswer
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.message import Message, SendAnswer, SendVerdict
from perdure.logs import logger
from perdure.loop import Outage
from perdure.runtime.store_time import StoreTime
from perdure.store.base import Store
from perdure.telemetry import Telemetry

log = logger("store")

RecordT = TypeVar("RecordT", Start, Commit, Message)
WaitingRecord = tuple[RecordT, OnAnswer, int]
"""A record that waits to be written, the callback for its answer, and its size in bytes."""


class Committer:
    """Batches starts, commits and sends into as few transactions as there is time for.

    Each answer corrects the store's ``time``. ``sent`` is the monotonic time just before the batch that is being
    answered went out: no lease in it begins earlier.
    """

    def __init__(self, store: Store, time: StoreTime, machine: Computer, telemetry: Telemetry) -> None:
        self.store = store
        self.time = time
        self.machine = machine
        self.telemetry = telemetry
        self.outage = Outage(machine.monotonic)
        self.sent = 0.0
        self._in_doubt = False  # whether the batch that is being written was sent before, with an unknown outcome
        self._starts: deque[WaitingRecord[Start]] = deque()
        self._commits: deque[WaitingRecord[Commit]] = deque()
        self._sends: deque[WaitingRecord[Message]] = deque()
        self._leaving: deque[WaitingRecord[Commit]] = deque()
        self._lines: dict[
            bytes, list[WaitingRecord[Message]]
        ] = {}  # by process: its row was locked when one was sent to it
        self._lined = 0
        self._aside: dict[int, Callable[[], None]] = {}
        self._turns_aside = 0
        self._held = 0  # bytes of the starts and sends that wait
        self._waiting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written, nor is being written."""
        waits = self._waiting is not None and not self._waiting.done()
        return waits and not (self._aside or self._lines)

    def open(self) -> None:
        """Begin writing on the running event loop."""
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="perdure committer")

    async def close(self) -> None:
        """Write what has gathered, then stop. What cannot be written any more is left to recovery."""
        self._closing = True
        self._wake()
        task = self._task
        if task is None:
            return
        done, _ = await asyncio.wait([task], timeout=limits.STOP_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait([task])
        self._task = None
        self._give_up()

    def _give_up(self) -> None:
        """Answer all that could not be written any more, so that no caller waits for ever."""
        for put_back in list(self._aside.values()):
            put_back()
        for queue in (self._starts, self._commits, self._sends, self._leaving):
            while queue:
                _tell(queue.popleft()[1], _closed())

    def commit(self, commit: Commit, answered: OnAnswer) -> None:
        """Have a commit written; ``answered`` gets its CommitAnswer, or BadRecord if the database refuses it."""
        if self._task is None:
            _tell(answered, _not_open())
            return
        self._commits.append((commit, answered, _bytes(commit)))
        if self._waiting is not None:
            self._wake()

    def take_away(self, commit: Commit, answered: OnAnswer) -> None:
        """Have a commit written that removes its process, once the former runs are gone: there may be very many."""
        if self._task is None or commit.after.run <= 2:
            self.commit(commit, answered)
            return
        self._leaving.append((commit, answered, _bytes(commit)))
        self._wake()

    def start(self, start: Start, answered: OnAnswer) -> None:
        """Have a new process stored; ``answered`` gets its StartAnswer, or Overloaded, or BadRecord."""
        size = _bytes(start)
        if self._has_room(size, answered):
            self._starts.append((start, answered, size))
            if self._waiting is not None:
                self._wake()

    def send(self, message: Message, answered: OnAnswer) -> None:
        """Have a message sent; ``answered`` gets its SendAnswer, or Overloaded, or BadRecord."""
        size = len(message.payload)
        if not self._has_room(size, answered):
            return
        if self._lines and (line := self._lines.get(message.process)) is not None:
            line.append((message, answered, size))
            self._lined += 1
            return
        self._sends.append((message, answered, size))
        if self._waiting is not None:
            self._wake()

    def _has_room(self, size: int, answered: OnAnswer) -> bool:
        """Whether one more start or send of so many bytes may wait; if not, it is answered with the error."""
        if self._task is None:
            _tell(answered, _not_open())
            return False
        held = self._held + size
        fits = held <= limits.WAITING_BYTES or held == size
        if fits and len(self._starts) + len(self._sends) + self._lined < limits.WAITING_RECORDS:
            self._held = held
            return True
        self.telemetry.count("overloaded")
        _tell(answered, Overloaded("too many starts and sends wait for the store; slow down and try again later"))
        return False

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _run(self) -> None:
        while True:
            if not (self._starts or self._commits or self._sends or self._leaving):
                if self._closing and not self._aside:
                    return
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
                self._waiting = None
            await self._write(self._starts, self.store.start)
            await self._write(self._commits, self.store.commit)
            await self._write(self._sends, self.store.send)
            if self._leaving:
                await self._thin_out()

    async def _thin_out(self) -> None:
        """Remove a portion of the former runs of a process that goes; when none is left its last commit is written."""
        last = self._leaving[0][0]
        try:
            left = (await self.store.prune(0, 0, 0, of=(last.after.id, last.version))).runs
        except Exception:
            left = 0  # the commit itself waits for the store, and then takes all away at once
        # If we die here the process goes on without some former runs, and the worker that takes it ends it as well.
        if not left:
            self._commits.append(self._leaving.popleft())

    async def _write(
        self, queue: deque[WaitingRecord[RecordT]], door: Callable[[Sequence[RecordT]], Awaitable[list[Any]]]
    ) -> None:
        if not queue:
            return
        batch, size = _take(queue)
        if not isinstance(batch[0][0], Commit):
            self._held -= size
        self.sent, self._in_doubt = self.machine.monotonic(), False
        try:
            answers = await self._resolved([entry[0] for entry in batch], door)
        except StoreError as error:
            answers = [error] * len(batch)
        except asyncio.CancelledError:
            for entry in batch:
                _tell(entry[1], _closed())
            raise
        except Exception as error:  # a defect of a store must not end the committer: everything waits for it
            log.exception("the store failed in a way it must not; please report it")
            answers = [StoreError(f"{type(error).__name__}: {error}; see the log")] * len(batch)
        again: list[WaitingRecord[RecordT]] = []
        early: list[WaitingRecord[RecordT]] = []
        due_in = limits.POLL_SECONDS
        for entry, answer in zip(batch, answers, strict=True):
            if getattr(answer, "verdict", None) not in _SET_ASIDE:  # an error has none
                _tell(entry[1], answer)
            elif isinstance(entry[0], Commit) and answer.verdict is Verdict.EARLY:
                early.append(entry)
                due_in = min(due_in, (entry[0].not_before - answer.now) / SECOND)
            else:
                again.append(entry)
        if again:
            if self._in_doubt:
                again = [(record, partial(self._as_of, self.sent, answered), size) for record, answered, size in again]
            if queue is self._sends:
                self._line_up(again)
            else:
                self._later(queue, again)
        if early:  # the store's clock stands still since it was set back: asking without a pause would not move it
            self.telemetry.count("commits_early", len(early))
            self._later(queue, early, due_in)

    async def _resolved(
        self, records: list[RecordT], door: Callable[[Sequence[RecordT]], Awaitable[list[Any]]]
    ) -> list[Any]:
        """The answers to a batch, however long the store is away; only the guilty records get BadRecord."""
        wait = limits.RECONNECT_FIRST_SECONDS
        while True:
            sent = self.machine.monotonic()
            try:
                answers = await door(records)
            except StoreUnavailable as error:
                # If we die here the batch is applied or not; its processes are claimed and replayed either way.
                self._in_doubt = True
                self.telemetry.count("commits_resent")
                self.telemetry.count("store_errors")
                if self._closing:
                    raise
                self.outage.began(error)
                await asyncio.sleep(wait * (0.5 + self.machine.random()))
                wait = min(wait * 2, limits.RECONNECT_CAP_SECONDS)
                continue
            except BadRecord as error:
                if len(records) == 1:
                    return [error]
                self.telemetry.count("batches_halved")
                half = len(records) // 2
                return await self._resolved(records[:half], door) + await self._resolved(records[half:], door)
            if self.outage.since is not None:
                self.outage.ended()
            self.telemetry.count("batches")
            self.telemetry.took(door.__name__, self.machine.monotonic() - sent)
            self._hear(records, answers, sent)
            return answers

    async def reached(self, instant: int) -> None:
        """Wait until the store's time has surely come to this instant: a worker's estimate of it may be ahead."""
        while self.time.confirmed < instant:
            sent = self.machine.monotonic()
            self.time.heard(await self.store.now(), sent)
            await asyncio.sleep(min(max(0, instant - self.time.confirmed) / SECOND, limits.POLL_SECONDS))

    def _as_of(self, sent: float, answered: OnAnswer, answer: Any) -> None:
        """Pass on the answer as that of an earlier sending, which may be the one applied: its lease runs from then."""
        last, self.sent = self.sent, min(self.sent, sent)
        try:
            answered(answer)
        finally:
            self.sent = last

    def _hear(
        self, records: Sequence[RecordT], answers: Sequence[CommitAnswer | StartAnswer | SendAnswer], sent: float
    ) -> None:
        """The database has answered these records; a subclass tells of them."""
        if answers and answers[0].now:
            self.time.heard(answers[0].now, sent)

    def _later(
        self, queue: deque[WaitingRecord[RecordT]], again: list[WaitingRecord[RecordT]], seconds: float = 0.0
    ) -> None:
        """Put records back after a moment: other transactions lock their rows, or their timers are not due yet."""

        def put_back() -> None:
            queue.extend(again)
            self._held += sum(entry[2] for entry in again if not isinstance(entry[0], Commit))

        self._put_aside(len(again), put_back, seconds)

    def _line_up(self, again: Sequence[WaitingRecord[Any]]) -> None:
        """Put messages back after a moment; whatever else is sent to these processes until then goes behind them."""
        lines: dict[bytes, list[WaitingRecord[Message]]] = {}
        for entry in again:
            lines.setdefault(entry[0].process, []).append(entry)
            self._held += entry[2]
        for _ in range(len(self._sends)):
            entry = self._sends.popleft()
            lines.get(entry[0].process, self._sends).append(entry)
        self._lines.update(lines)
        self._lined += sum(map(len, lines.values()))

        def put_back() -> None:
            for process in lines:
                line = self._lines.pop(process)
                self._lined -= len(line)
                self._sends.extend(line)

        self._put_aside(len(again), put_back)

    def _put_aside(self, records: int, back: Callable[[], None], seconds: float = 0.0) -> None:
        """Have ``back`` called after a moment, or when the engine closes before that."""
        self.telemetry.count("commits_busy", records)
        self._turns_aside += 1
        turn = self._turns_aside

        def put_back() -> None:
            if self._aside.pop(turn, None) is not None:
                back()
                self._wake()

        self._aside[turn] = put_back
        asyncio.get_running_loop().call_later(seconds + 0.005 + 0.01 * self.machine.random(), put_back)


def _not_open() -> StoreError:
    return StoreError("the engine is not open; use it inside `async with Engine(...)`")


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the engine was closed before it was known whether this was written; ask another engine")


def _tell(answered: OnAnswer, answer: Any) -> None:
    """Give one record's answer to its caller; an error that the caller raises does not concern the other records."""
    try:
        answered(answer)
    except Exception:
        log.exception("the receiver of a store's answer raised an error; please report it")


_SET_ASIDE = frozenset({StartVerdict.BUSY, Verdict.BUSY, Verdict.EARLY, SendVerdict.BUSY})
"""The verdicts after which a record is tried again. They are texts: those of different enums compare as equal."""


def _take(queue: deque[WaitingRecord[RecordT]]) -> tuple[list[WaitingRecord[RecordT]], int]:
    """Up to 1,000 records and 8 MiB, in order, at most one commit per process (rules 2 and 6); and how many bytes."""
    batch: list[WaitingRecord[RecordT]] = []
    taken: set[bytes] = set()
    left: list[WaitingRecord[RecordT]] = []
    most, largest = limits.BATCH_RECORDS, limits.BATCH_BYTES
    size = 0
    while queue and len(batch) < most and size < largest:
        entry = queue.popleft()
        record = entry[0]
        if record.__class__ is Commit:
            id = record.after.id
            if id in taken:
                left.append(entry)
                continue
            taken.add(id)
        size += entry[2]
        batch.append(entry)
    queue.extendleft(reversed(left))
    return batch, size


def _bytes(record: Start | Commit) -> int:
    """The bytes of the parts that may be long. Every step comes by here, so mostly empty parts are not added up."""
    size = 0
    if isinstance(record, Start):
        size = len(record.process.input)
        if record.messages:
            size += sum(len(sent.payload) for sent in record.messages)
    else:
        after = record.after
        if after.result is not None:
            size += len(after.result)
        if after.state is not None:
            size += len(after.state)
        if record.starts or record.sends:
            size += sum(len(start.process.input) for start in record.starts)
            size += sum(len(sent.payload) for sent in record.sends)
        if record.brings is not None:
            size += len(record.brings.payload)
    for event in record.events:
        if event.payload is not None:
            size += len(event.payload)
    return size
