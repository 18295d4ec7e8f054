"""The watchdog: a thread that finds what blocks the event loop and whose code it is, and ends a worker that hangs.

The stack of the loop's thread tells whose code blocks it, so that running a step costs nothing. The evidence is written
into the store by a witness, from a thread of its own, while the loop is blocked.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure import limits
from perdure.authoring.step import ATTEMPT
from perdure.clock import Computer
from perdure.errors import PerdureError
from perdure.kernel.failure import safe_text
from perdure.kernel.names import id_text
from perdure.kernel.worker import Beat, Hang
from perdure.logs import logger
from perdure.runtime.os_process import EXIT_HUNG
from perdure.runtime.steps.async_runner import AsyncRunner
from perdure.store.url import store_for
from perdure.telemetry import Telemetry
from perdure.turns.current import turn_running

if TYPE_CHECKING:
    from contextvars import Context

    from perdure.runtime.heartbeat import Heartbeat
    from perdure.runtime.steps.attempt_run import AttemptRun

log = logger("worker")

SHARE = 0.25
"""After this share of a lease the evidence is written into the store: before the first lease lapses."""


class Watchdog:
    """Checks again and again whether the loop has ticked; a blocked one is reported once with its stack.

    When the same code has blocked the loop for a part of the lease, the evidence is written where the next worker
    finds it. When the lease is lost by our own reckoning and the loop is still blocked, the watchdog ends this OS
    process (``exits``), or calls ``fence`` with the incarnation and the evidence as soon as the loop runs again.
    Time in which the watchdog did not look either (a stopped OS process, a machine that was paused) is no evidence.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        witness: Witness,
        machine: Computer,
        telemetry: Telemetry,
        fence: Callable[[bytes, bytes | None], None] = lambda incarnation, hang: None,
        *,
        exits: bool = False,
    ) -> None:
        self.heartbeat = heartbeat
        self.witness = witness
        self.machine = machine
        self.telemetry = telemetry
        self.exits = exits
        self.lease = heartbeat.scheduler.lease_seconds
        self.seconds = limits.BLOCKED_LOOP_SECONDS
        self._fence = fence
        self._sign: Callable[[], None] = lambda: None
        self._sign_off: Callable[[], None] = lambda: None
        self.blocker: Callable[[], Blocker] = self._found
        self._ticked = self._seen = 0.0
        self._looked = 0.0
        self._blocked = 0.0
        self._steady = 0.0
        self._by: Blocker | None = None
        self._reported = self._ended = False
        self._stop = threading.Event()
        self._watched = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="perdure watchdog", daemon=True)

    def sign_by(self, sign: Callable[[], None], sign_off: Callable[[], None] = lambda: None) -> None:
        """Call ``sign`` as a sign of life, now and at every look, and ``sign_off`` at the end."""
        self._sign, self._sign_off = sign, sign_off
        sign()

    def begin(self) -> None:
        """Take the event loop of the calling thread as the one to watch, and let it tick."""
        self._watched = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._looked = self.machine.monotonic()
        self._tick()

    def start(self) -> None:
        """Watch the event loop of the calling thread."""
        self.begin()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the thread ends within its next look."""
        self._stop.set()
        if self._handle is not None:
            self._handle.cancel()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return min(self.seconds / 2, self.lease / 16)

    def _tick(self) -> None:
        self._ticked = self.machine.monotonic()
        self._handle = asyncio.get_running_loop().call_later(self.pause / 2, self._tick)

    def _watch(self) -> None:
        while not self._stop.wait(self.pause):
            self._sign()
            try:
                self.look()
            except Exception:  # without it nobody would see that a worker hangs
                log.exception("the watchdog could not look, and looks again; please report it")
        self._sign_off()

    def look(self) -> None:
        """Check once whether the loop has ticked, which code blocks it, and whether the lease is still ours."""
        now = self.machine.monotonic()
        since, self._looked = min(now - self._looked, 2 * self.pause), now
        if self._ticked != self._seen:
            self._seen = self._ticked
            self._blocked = self._steady = 0.0
            self._by = None
            self._reported = self._ended = False
            return
        self._blocked += since
        by = self.blocker()
        same = self._by is not None and self._by.process == by.process
        self._steady = self._steady + since if same else 0.0
        self._by = by
        if self._blocked > self.seconds and not self._reported:
            self._reported = True
            self._report(self._blocked)
        evidence = self._evidence(by)
        if evidence is not None and not self._ended:
            self.witness.tell(Beat(self.heartbeat.incarnation.id, (), 0, 0, evidence.encode()))
        margin = min(limits.LEASE_MARGIN_SECONDS, self.lease / 4)
        if self._blocked >= self.lease * SHARE and now >= self.heartbeat.sure_until - margin and not self._ended:
            self._ended = True
            self._end(by, evidence)

    def _found(self) -> Blocker:
        assert self._loop is not None
        return found(self._watched, self._loop)

    def _evidence(self, by: Blocker) -> Hang | None:
        """The evidence against the process that has blocked the loop at every look for long enough, if one has."""
        if by.process is None or self._steady < self.lease * SHARE:
            return None
        return Hang(by.process, by.step, self._steady, by.stack)

    def _report(self, blocked: float) -> None:
        self.telemetry.count("loops_blocked")
        assert self._by is not None
        by = self._by
        self._say(
            lambda: log.error(
                "the event loop has been blocked %sfor %.1f s: no beat is sent, and the leases of this worker will "
                "lapse. Make the blocking call a sync step (it runs in a thread). The stack:\n%s",
                _by(by),
                blocked,
                by.stack,
            )
        )

    def _end(self, by: Blocker, evidence: Hang | None) -> None:
        """End a worker whose lease is lost: nothing that it does counts now, and its processes must go on elsewhere."""
        self.telemetry.count("loops_hung")
        worker, blocked = self.heartbeat.incarnation.id, self._blocked
        over = by.step and self._loop is not None and self._loop.time() > by.deadline
        late = f" Its timeout of {by.timeout:g} s is over." if over else ""
        how = f"this OS process ends itself with exit code {EXIT_HUNG}"
        if not self.exits:
            how = "this worker drops all that it holds as soon as the loop runs again (WorkerOptions: exit_when_hung)"
        self._say(
            lambda: log.critical(
                "worker %s is hung: its event loop has been blocked %sfor %.1f s and its lease is lost; %s.%s "
                "The stack:\n%s",
                id_text(worker), _by(by), blocked, how, late, by.stack,
            )
        )  # fmt: skip
        if self.exits:
            self._sign()
            self.witness.wait(limits.LAST_WORDS_SECONDS)
            # If we die here nothing is different: the system frees our lock, and others find the evidence.
            self.machine.exit(EXIT_HUNG)
        elif self._loop is not None and not self._loop.is_closed():
            hang = None if evidence is None else evidence.encode()
            self._loop.call_soon_threadsafe(self._fence, worker, hang)

    def _say(self, words: Callable[[], None]) -> None:
        """Log in a thread of its own: what blocks the loop may be the log itself."""
        if self.machine.simulated:
            words()
            return
        self._sign()  # logging may take a while
        said = aside(words, "perdure last words")
        if said is not None:
            said.join(limits.LAST_WORDS_SECONDS)


def _by(by: Blocker) -> str:
    if by.process is None:
        return ""
    where = f"step {by.step}" if by.step else "the workflow code"
    return f"by {where} of process {id_text(by.process)} "


_RUNNING = (AsyncRunner._run.__code__, AsyncRunner._begin.__code__)
_HANDLE = asyncio.Handle._run.__code__


class Blocker(Struct, frozen=True):
    """What blocks the loop: code of a ``process``, or (None) other code; ``step`` with its place, if it is a step's.

    ``deadline`` is that of the step's attempt by the loop's clock, ``timeout`` the seconds that it was given.
    """

    stack: str
    process: bytes | None = None
    step: str = ""
    timeout: float = 0.0
    deadline: float = 0.0


def found(thread: int, loop: asyncio.AbstractEventLoop) -> Blocker:
    """What blocks the loop that runs in ``thread``; called from another one."""
    frame = sys._current_frames().get(thread)
    stack = "unknown" if frame is None else "".join(traceback.format_stack(frame))
    stack = safe_text(stack, limits.STACK_TEXT_BYTES, keep_end=True)
    process = turn_running(thread)
    if process is not None:
        return Blocker(stack, process)
    attempt_run = _attempt_run(frame) or _of_task(loop)
    if attempt_run is None:
        return Blocker(stack)
    ask = attempt_run.ask
    return Blocker(
        stack, attempt_run.instance.process.id, f"{ask.name}:{ask.place}", attempt_run.timeout, attempt_run.deadline
    )


def _attempt_run(frame: FrameType | None) -> AttemptRun | None:
    """The attempt whose code is on the stack: of the step itself, or of a task or callback that it has made."""
    while frame is not None:
        if frame.f_code in _RUNNING:
            found: AttemptRun | None = frame.f_locals.get("attempt_run")
            return found
        if frame.f_code is _HANDLE:
            handle = frame.f_locals.get("self")  # None when it has just been run: the thread does not wait for us
            given = None if handle is None else _of_context(handle._context)
            if given is not None:
                return given
        frame = frame.f_back
    return None


def _of_task(loop: asyncio.AbstractEventLoop) -> AttemptRun | None:
    """The same for an event loop that is not written in Python and has no frames of its own."""
    task: Any = asyncio.current_task(loop)
    return _of_context(task.get_context()) if task is not None and hasattr(task, "get_context") else None


def _of_context(context: Context) -> AttemptRun | None:
    current = context.get(ATTEMPT)
    attempt_run: AttemptRun | None = getattr(current, "__self__", None)
    return attempt_run


class Witness:
    """Writes evidence into the store at ``url``, one beat at a time; ``told`` is the last one written."""

    def __init__(self, url: str, machine: Computer) -> None:
        self.url = url
        self.machine = machine
        self.told: Beat | None = None
        self._telling: threading.Thread | None = None

    def tell(self, beat: Beat) -> None:
        """Have a beat written, unless the one before is still under way: then the next look asks again."""
        if self._telling is None or not self._telling.is_alive():
            self._telling = aside(lambda: self._tell(beat), "perdure witness")

    def wait(self, seconds: float) -> None:
        """Wait up to so many seconds for the beat under way."""
        if self._telling is not None:
            self._telling.join(seconds)

    def _tell(self, beat: Beat) -> None:
        try:
            asyncio.run(self._written(beat))
        except (PerdureError, OSError, TimeoutError) as error:
            log.warning("what blocks the event loop could not be written into the store: %s", error)

    async def _written(self, beat: Beat) -> None:
        async with asyncio.timeout(limits.EVIDENCE_SECONDS):
            store = store_for(self.url, self.machine)
            await store.open(migrate=False)
            try:
                # If we die here the evidence is missing: the hang counts as a death without it, or as mere silence.
                await store.beat(beat)
                self.told = beat
            finally:
                await store.close()


def aside(function: Callable[[], object], name: str) -> threading.Thread | None:
    """Run a function in a daemon thread of its own; None if the system refuses the thread just now."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
