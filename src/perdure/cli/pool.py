"""A crew: several workers, each an OS process, started, replaced when they die, and stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from perdure.cli.exit_code import CANNOT_START, DONE, FAILED, USAGE, WORN_OUT
from perdure.cli.worker_process import GRACE_SECONDS, Terms, command, environment
from perdure.clock import Machine
from perdure.exhaustion import exhausted
from perdure.logs import logger
from perdure.runtime.os_process import hearing, mind

FIRST_SECONDS = 0.5
CAP_SECONDS = 30.0
STEADY_SECONDS = 60.0

log = logger("worker")


class Seat:
    """One place in the crew: the OS process that runs there now; ``refused`` is the exit code of one that cannot."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.refused: int | None = None


class Crew:
    """``size`` workers on the same terms. :meth:`run` ends when they were told to stop, or when none can start."""

    def __init__(self, terms: Terms, url: str, size: int, machine: Machine | None = None) -> None:
        self.terms = terms
        self.url = url
        self.machine = machine or Machine()
        self.seats = [Seat(number) for number in range(size)]
        self.asked = 0
        self._stopping: asyncio.Event | None = None

    async def run(self) -> int:
        """Keep every seat taken until told to stop; the answer is the exit code."""
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        log.info("crew of %d workers, parent %d", len(self.seats), os.getpid())
        first = asyncio.create_task(self._keep(self.seats[0]))
        ready = asyncio.create_task(self.seats[0].ready.wait())
        # The first migrates and proves that the modules import; the others follow, or are spared the same error.
        await asyncio.wait([first, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        others = [] if first.done() else [asyncio.create_task(self._keep(seat)) for seat in self.seats[1:]]
        await asyncio.gather(first, *others)
        taken = self.seats[: 1 + len(others)]
        if any(seat.refused is None for seat in taken):
            return DONE
        return USAGE if any(seat.refused == USAGE for seat in taken) else FAILED

    def stop(self) -> None:
        """Pass a request to stop on to every member; the third one kills those that are left."""
        self.asked += 1
        assert self._stopping is not None
        self._stopping.set()
        for seat in self.seats:
            _send(seat.process, signal.SIGTERM if self.asked < 3 else signal.SIGKILL)

    async def _keep(self, seat: Seat) -> None:
        """Fill one seat again and again, ever more slowly while its members die young."""
        assert self._stopping is not None
        wait = FIRST_SECONDS
        while not self._stopping.is_set():
            began = self.machine.monotonic()
            try:
                code = await self._sit(seat)
            except OSError as error:
                what = exhausted(error, spawning=True)
                if what is None:
                    raise
                log.error("the system refuses this crew %s (%s): raise the limits; tried again", what, error)
                code = WORN_OUT
            if self._stopping.is_set():
                return
            if code in (CANNOT_START, USAGE):
                seat.refused = code
                return
            if self.machine.monotonic() - began > STEADY_SECONDS:
                wait = FIRST_SECONDS
            log.warning("worker %s %s; another takes its place in %.1f s", _pid(seat), _ended(code), wait)
            try:
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            except TimeoutError:
                wait = min(wait * 2, CAP_SECONDS)

    async def _sit(self, seat: Seat) -> int:
        """Have one member serve in this seat until it ends; the answer is its exit code."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                # A session of its own: a Ctrl-C at the terminal reaches us alone, and we pass it on.
                seat.process = await asyncio.create_subprocess_exec(
                    *command(self.terms, theirs.fileno()),
                    env=environment(self.url),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            if self.asked:
                _send(seat.process, signal.SIGTERM)
            listening = asyncio.create_task(self._listen(seat, ours))
            try:
                return await self._wait(seat.process)
            finally:
                listening.cancel()

    async def _listen(self, seat: Seat, ours: socket.socket) -> None:
        """Hear when a member is ready; from then on it is killed if its interpreter runs no more."""
        heard, process = hearing(ours), seat.process
        assert process is not None
        if await asyncio.get_running_loop().sock_recv(ours, 1):
            seat.ready.set()
            await mind(process.pid, heard, lambda: _send(process, signal.SIGKILL), self.terms.patience)

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """Wait for a member's end; one that does not stop within the limit is killed."""
        assert self._stopping is not None
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await asyncio.wait([ended], timeout=self.terms.stop + GRACE_SECONDS)
        if not ended.done():
            log.warning("worker %d did not stop in time and is killed; what it held goes on elsewhere", process.pid)
            _send(process, signal.SIGKILL)
        return await ended


def _send(process: asyncio.subprocess.Process | None, what: signal.Signals) -> None:
    if process is not None and process.returncode is None:
        try:
            process.send_signal(what)
        except ProcessLookupError:
            pass  # it has just ended


def _pid(seat: Seat) -> str:
    return "?" if seat.process is None else str(seat.process.pid)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
