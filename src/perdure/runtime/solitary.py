"""The solitary worker: a suspect runs alone, in an OS process of its own, so that its death hurts nobody else.

A process is a suspect when it has died twice with its worker. Only a death while it ran alone counts towards the
limit at which it is parked as broken (rule 13).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from msgspec.json import encode

from perdure.authoring.registry import Registry
from perdure.clock import Child, Machine
from perdure.loop import Loop
from perdure.runtime.pace import Pace
from perdure.runtime.watchdog import EXIT_HUNG
from perdure.telemetry import Telemetry

log = logging.getLogger("perdure")

GRACE_SECONDS = 5.0
"""What a solitary worker gets to stop, beyond the time for the step in its hands."""
AGAIN_SECONDS = 60.0
"""The longest wait before another try, when solitary workers cannot even start."""


class Solitary:
    """Spawns one solitary worker at a time while suspects are due."""

    def __init__(self, url: str, registry: Registry, pace: Pace, machine: Machine, telemetry: Telemetry) -> None:
        self.url = url
        self.registry = registry
        self.pace = pace
        self.machine = machine
        self.telemetry = telemetry
        self.loop = Loop("solitary", self._tick)
        self._wanted = False
        self._child: Child | None = None
        self._failures = 0

    def wanted(self) -> None:
        """Suspects are due: have one run alone."""
        if not self._wanted:
            self._wanted = True
            self.loop.wake()

    async def stop(self, hurry: asyncio.Event) -> None:
        """Ask a solitary worker under way to stop, in a hurry if need be; one that does not is killed."""
        child = self._child
        if child is not None and child.returncode is None:
            child.terminate()
        await self.loop.stop()
        if child is None:
            return
        hurrying = asyncio.create_task(self._hasten(child, hurry))
        try:
            async with asyncio.timeout(self.pace.stop_seconds + GRACE_SECONDS):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()
        hurrying.cancel()

    async def _hasten(self, child: Child, hurry: asyncio.Event) -> None:
        await hurry.wait()
        if child.returncode is None:
            child.terminate()

    async def _tick(self) -> float:
        if not self._wanted:
            return 60.0
        self._wanted = False
        self.telemetry.count("suspects_alone")
        # If we die here the child runs on or dies by itself; the suspect's row is leased by whoever claimed it.
        try:
            self._child = await self.machine.spawn(self.command(), self.environment())
        except (OSError, RuntimeError, MemoryError):
            self._wanted = True  # the system refuses it for now: the suspect still has to run
            raise
        code = await self._child.wait()
        self._child = None
        if code == EXIT_HUNG:
            log.warning("a solitary worker was hung by the process that it ran, and has ended itself; see its output")
        elif code > 0:
            self._failures += 1
            wait = min(2.0**self._failures, AGAIN_SECONDS)
            log.error("a solitary worker cannot run (exit code %d, see its output); again in %g s", code, wait)
            await asyncio.sleep(wait)
        elif code < 0:
            log.warning("a solitary worker was killed by signal %d: the process that it ran is the suspect", -code)
        self._failures = self._failures if code > 0 and code != EXIT_HUNG else 0
        return 0.0

    def command(self) -> list[str]:
        """The command of a solitary worker: this Python, the queues served and modules hosted here."""
        pace = f"{self.pace.lease_seconds},{self.pace.beat_seconds},{self.pace.stop_seconds}"
        served = [queue.queue for queue in self.registry.queues.values()], self.registry.labels
        return [sys.executable, "-m", "perdure.alone", pace, encode(served).decode(), *self.registry.sources]

    def environment(self) -> dict[str, str]:
        """Our environment, with the store's URL (never an argument: it may hold a password) and the import path."""
        return {**inherited_environment(), "PERDURE_URL": self.url}


def inherited_environment() -> dict[str, str]:
    """What a child OS process of ours gets: our environment, with the import path that we have."""
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}
