"""A worker pool: several workers, each an OS process, started, replaced when they die, and stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

from msgspec.structs import replace

from perdure import limits
from perdure.cli.exit_code import CANNOT_START, DONE, FAILED, USAGE, WORN_OUT
from perdure.cli.worker_process import ProcessOptions, command, environment
from perdure.clock import Computer, blocking_pair
from perdure.exhaustion import exhausted
from perdure.logs import logger
from perdure.runtime.os_process import hearing, mind

FIRST_SECONDS = 0.5
CAP_SECONDS = 30.0
STEADY_SECONDS = 60.0

log = logger("worker")


class WorkerSlot:
    """One place in the pool: the OS process that runs there now; ``refused`` is set if it is given up: an exit code."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.refused: int | None = None


class WorkerPool:
    """``size`` workers with the same options.

    :meth:`run` ends when they were told to stop, or when the first of them cannot start. Once a worker of the pool was
    ready, one that cannot start is tried again: its modules may be changed just now, or its port still be taken.
    """

    def __init__(self, options: ProcessOptions, url: str, size: int, machine: Computer | None = None) -> None:
        self.options = options
        self.url = url
        self.machine = machine or Computer()
        self.slots = [WorkerSlot(number) for number in range(size)]
        self.asked = 0
        self._stopping: asyncio.Event | None = None

    async def run(self) -> int:
        """Keep every slot taken until told to stop; the answer is the exit code."""
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        log.info("pool of %d workers, parent %d", len(self.slots), os.getpid())
        first = asyncio.create_task(self._keep(self.slots[0]))
        ready = asyncio.create_task(self.slots[0].ready.wait())
        # The first migrates and proves that the modules import; the others follow, or are spared the same error.
        await asyncio.wait([first, ready], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        others = [] if first.done() else [asyncio.create_task(self._keep(slot)) for slot in self.slots[1:]]
        await asyncio.gather(first, *others)
        taken = self.slots[: 1 + len(others)]
        if any(slot.refused is None for slot in taken):
            return DONE
        return USAGE if any(slot.refused == USAGE for slot in taken) else FAILED

    def stop(self) -> None:
        """Pass a request to stop on to every worker; the third one kills those that are left."""
        self.asked += 1
        assert self._stopping is not None
        self._stopping.set()
        for slot in self.slots:
            _send(slot.process, signal.SIGTERM if self.asked < 3 else signal.SIGKILL)

    async def _keep(self, slot: WorkerSlot) -> None:
        """Fill one slot again and again, ever more slowly while its workers die young."""
        assert self._stopping is not None
        wait = FIRST_SECONDS
        while not self._stopping.is_set():
            began = self.machine.monotonic()
            try:
                code = await self._fill(slot)
            except OSError as error:
                what = exhausted(error, spawning=True)
                if what is None:
                    raise
                log.error("the system refuses this pool %s (%s): raise the limits; tried again", what, error)
                code = WORN_OUT
            if self._stopping.is_set():
                return
            if code in (CANNOT_START, USAGE) and not any(each.ready.is_set() for each in self.slots):
                slot.refused = code
                return
            if self.machine.monotonic() - began > STEADY_SECONDS:
                wait = FIRST_SECONDS
            log.warning("worker %s %s; another takes its place in %.1f s", _pid(slot), _ended(code), wait)
            try:
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            except TimeoutError:
                wait = min(wait * 2, CAP_SECONDS)

    def _options_of(self, slot: WorkerSlot) -> ProcessOptions:
        """The options of the worker in this slot: it and those that replace it serve their metrics at one port."""
        port = self.options.metrics
        return replace(self.options, metrics=port + slot.number) if port else self.options

    async def _fill(self, slot: WorkerSlot) -> int:
        """Have one worker run in this slot until it ends; the answer is its exit code."""
        ours, theirs = blocking_pair()
        with ours:
            with theirs:
                # A session of its own: a Ctrl-C at the terminal reaches us alone, and we pass it on.
                slot.process = await asyncio.create_subprocess_exec(
                    *command(self._options_of(slot), theirs.fileno()),
                    env=environment(self.url),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            if self.asked:
                _send(slot.process, signal.SIGTERM)
            listening = asyncio.create_task(self._listen(slot, ours))
            try:
                return await self._wait(slot.process)
            finally:
                listening.cancel()

    async def _listen(self, slot: WorkerSlot, ours: socket.socket) -> None:
        """Hear when a worker is ready; from then on it is killed if its interpreter runs no more."""
        heard, process = hearing(ours), slot.process
        assert process is not None
        if await asyncio.get_running_loop().sock_recv(ours, 1):
            slot.ready.set()
            await mind(process.pid, heard, lambda: _send(process, signal.SIGKILL), self.options.patience)

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """Wait for a worker's end; one that does not stop within the limit is killed."""
        assert self._stopping is not None
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await asyncio.wait([ended], timeout=self.options.stop + limits.END_GRACE_SECONDS)
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


def _pid(slot: WorkerSlot) -> str:
    return "?" if slot.process is None else str(slot.process.pid)


def _ended(code: int) -> str:
    if code in (CANNOT_START, USAGE):
        return f"could not start, as told above (exit code {code})"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
