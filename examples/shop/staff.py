"""The shop's staff: three workers, each an OS process of its own, which the demonstration treats badly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

LEASE_SECONDS = 2.0
BEAT_SECONDS = 0.5
START_SECONDS = 30.0


class Hand:
    """One worker: ``perdure worker examples.shop.orders`` as a child of ours."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process
        self.state = "starting"
        self.counters: dict[str, float] = {}
        self.ready = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.process.pid})"

    async def _read(self) -> None:
        """Hear what the worker says about itself, one line of JSON each."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == "started":
                self.state = "working"
                self.ready.set()
            elif said["event"] == "stopped":
                self.counters = said["counters"]

    def kill(self) -> None:
        """End it without a word, as a machine that loses power does."""
        self.process.send_signal(signal.SIGKILL)
        self.state = "killed"

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does; it does not notice."""
        self.process.send_signal(signal.SIGSTOP)
        self.state = "stopped"

    def thaw(self) -> None:
        """Let it go on as if no time had passed."""
        self.process.send_signal(signal.SIGCONT)
        self.state = "working"

    async def leave(self) -> None:
        """Ask it to stop, and wait until it has."""
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()
        await self.reading


class Staff:
    """Starts and ends the workers; they write their logs into ``folder``."""

    def __init__(self, url: str, shop_url: str, folder: Path) -> None:
        self.environment = {**os.environ, "PERDURE_URL": url, "SHOP_URL": shop_url}
        path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self.folder = folder
        self.hands: list[Hand] = []

    async def hire(self, count: int) -> None:
        """Start workers and wait until all of them work."""
        pace = ("--lease", str(LEASE_SECONDS), "--beat", str(BEAT_SECONDS))
        for number in range(1, count + 1):
            with (self.folder / f"worker-{number}.log").open("w") as log:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "perdure", "worker", "examples.shop.orders", "--json", *pace,
                    env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=log,
                )  # fmt: skip
            self.hands.append(Hand(number, process))
        for hand in self.hands:
            ready = asyncio.create_task(hand.ready.wait())
            await asyncio.wait([ready, hand.reading], timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if not hand.ready.is_set():
                log = (self.folder / f"worker-{hand.number}.log").read_text()
                raise RuntimeError(f"{hand} did not start:\n{log}")

    async def dismiss(self) -> None:
        """Let those who live finish and go, and hear what they have counted."""
        await asyncio.gather(*(hand.leave() for hand in self.hands if hand.state == "working"))
        for hand in self.hands:
            await hand.reading

    def end(self) -> None:
        """Leave nobody behind, whatever happened."""
        for hand in self.hands:
            if hand.process.returncode is None:
                hand.process.kill()


async def freeze_between_writes(hand: Hand, files: list[Path]) -> None:
    """Stop a worker when it holds no SQLite file locked.

    SQLite has one writer at a time: whoever is stopped in the middle of a write stops everybody until it goes on. That
    is SQLite's nature and no test of leases, so such a moment is let pass.
    """
    for _ in range(200):
        hand.freeze()
        if all([await asyncio.to_thread(_is_free, file) for file in files]):
            return
        hand.thaw()
        await asyncio.sleep(0.005)
    hand.freeze()


def _is_free(file: Path) -> bool:
    connection = sqlite3.connect(file, timeout=0.3, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True
