"""Victims: OS processes that tests kill, each forked from the prepared Python of :mod:`tests.prepared`.

A victim runs its module as ``python -m`` does, with arguments, environment and standard streams of its own. It has an
exit code, and may be killed or stopped as any other. That it is as a fresh program in all that matters here is proved
by ``test_victim.py``. Only ``$PERDURE_PAYLOAD_BYTES`` and its like, which are read by the import itself, are those of
the prepared program.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

from tests.prepared import Program, prepared
from tests.source import PYTHONPATH

ENVIRONMENT = {"PYTHONPATH": PYTHONPATH}
"""What is set in the environment of each OS process that the tests start here."""


class Victim:
    """A forked OS process, as :class:`asyncio.subprocess.Process` shows one; its output is read by ``stdout``."""

    def __init__(self, program: Program) -> None:
        self.pid = program.pid
        self.stdout: asyncio.StreamReader | None = None
        self._program = program
        self._output: asyncio.BaseTransport | None = None
        self._end = asyncio.create_task(self._until_its_end())

    @property
    def returncode(self) -> int | None:
        """Its exit code if it is known to have ended, below zero if a signal has killed it; else None."""
        return self._end.result() if self._end.done() else None

    async def _until_its_end(self) -> int:
        """Only this reads the link: whoever did so between two looks of the event loop would take the news away."""
        ended = asyncio.Event()
        loop, link = asyncio.get_running_loop(), self._program.link
        loop.add_reader(link, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(link)
        return self._program.wait()

    async def hear(self, output: int) -> None:
        """Read what it prints from this pipe."""
        loop = asyncio.get_running_loop()
        self.stdout = asyncio.StreamReader(loop=loop)
        reader = asyncio.StreamReaderProtocol(self.stdout, loop=loop)
        self._output, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(output, "rb", 0))

    async def wait(self) -> int:
        """Wait for its end; the exit code, below zero if a signal has killed it."""
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        """Send it a signal; raises ProcessLookupError if it has ended."""
        if self._end.done():
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it by SIGKILL; raises ProcessLookupError if it has ended."""
        self.send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """Kill it if it still runs, and let go of its output, which a child of its own may still hold."""
        with suppress(ProcessLookupError):
            self.kill()
        await self.wait()
        if self._output is not None:
            self._output.close()


async def victim(module: str, *arguments: str, output: int | None = None, errors: int | None = None) -> Victim:
    """Fork an OS process that runs a module; it prints into the file ``output``, or for its :attr:`Victim.stdout`."""
    pipe, printed = (None, output) if output is not None else os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    stderr = sys.__stderr__.fileno() if errors is None else errors  # type: ignore[union-attr]
    try:
        made = Victim(
            prepared().start(["-m", module, *arguments], {**os.environ, **ENVIRONMENT}, (nothing, printed, stderr))
        )
    finally:
        os.close(nothing)
        if pipe is not None:
            os.close(printed)
    if pipe is not None:
        await made.hear(pipe)
    return made
