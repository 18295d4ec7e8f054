"""What the examples whose workers are killed have in common."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path


class Workers:
    """Workers of a module's workflows and machines, each an OS process of its own; they are treated badly."""

    def __init__(self, module: str, url: str, **environment: str) -> None:
        self.module = module
        here = str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
        self.environment = {**os.environ, **environment, "PERDURE_URL": url, "PYTHONPATH": path}
        self.all: list[asyncio.subprocess.Process] = []

    async def add(self) -> None:
        """Start another one, and wait until it says that it works."""
        command = [sys.executable, "-P", "-m", "perdure", "worker", self.module, "--json"]
        pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        one = await asyncio.create_subprocess_exec(*command, env=self.environment, stdout=pipe, stderr=quiet)
        self.all.append(one)
        assert one.stdout is not None
        await one.stdout.readline()

    async def kill_one(self) -> None:
        """Kill the oldest without a word, as a machine that loses power does, and start another one."""
        await self.add()
        oldest = self.all.pop(0)
        oldest.kill()
        await oldest.wait()

    async def stop(self) -> None:
        """Ask those that live to stop, and wait for them."""
        for one in self.all:
            one.terminate()
        for one in self.all:
            await one.wait()
