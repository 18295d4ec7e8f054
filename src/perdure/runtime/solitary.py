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

from perdure.authoring.registry import Registry
from perdure.loop import Loop
from perdure.runtime.pace import Pace
from perdure.telemetry import Telemetry

log = logging.getLogger("perdure")


class Solitary:
    """Spawns one solitary worker at a time while suspects are due."""

    def __init__(self, url: str, registry: Registry, pace: Pace, telemetry: Telemetry) -> None:
        self.url = url
        self.registry = registry
        self.pace = pace
        self.telemetry = telemetry
        self.loop = Loop("solitary", self._tick)
        self._wanted = False
        self._child: asyncio.subprocess.Process | None = None

    def wanted(self) -> None:
        """Suspects are due: have one run alone."""
        if not self._wanted:
            self._wanted = True
            self.loop.wake()

    async def stop(self) -> None:
        """Ask a solitary worker under way to stop, and wait for it."""
        child = self._child
        if child is not None and child.returncode is None:
            child.terminate()
        await self.loop.stop()
        if child is not None:
            await child.wait()

    async def _tick(self) -> float:
        if not self._wanted:
            return 60.0
        self._wanted = False
        self.telemetry.count("suspects_alone")
        # If we die here the child runs on or dies by itself; the suspect's row is leased by whoever claimed it.
        self._child = await asyncio.create_subprocess_exec(*self.command(), env=self.environment())
        code = await self._child.wait()
        self._child = None
        if code != 0:
            log.warning("a solitary worker ended with code %s: the process that it ran is the suspect", code)
        return 0.0

    def command(self) -> list[str]:
        """The command of a solitary worker: this Python, the modules that define what is hosted here."""
        pace = f"{self.pace.lease_seconds},{self.pace.beat_seconds}"
        return [sys.executable, "-m", "perdure.alone", pace, *self.registry.sources]

    def environment(self) -> dict[str, str]:
        """Our environment, with the store's URL (never an argument: it may hold a password) and the import path."""
        path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
        return {**os.environ, "PERDURE_URL": self.url, "PYTHONPATH": path}
