"""The quarantine: suspects run in OS processes of their own, so that a death hurts no other process.

A process is a suspect when two workers have died while they held it. It runs in a group of suspects, which each death
halves; only a death while it ran alone counts towards the limit at which it is parked as broken (rule 13).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

from msgspec.json import encode

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import NO_POLICIES, StepPolicies
from perdure.clock import ChildProcess, Computer
from perdure.kernel import quarantine
from perdure.kernel.commit import Commit
from perdure.kernel.policy import POLICIES
from perdure.kernel.process import Process
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.alerts import Alerts
from perdure.runtime.options import WorkerOptions
from perdure.runtime.os_process import EXIT_HUNG, inherited_environment, minded, patience
from perdure.telemetry import Telemetry

log = logger("quarantine")

AGAIN_SECONDS = 60.0
"""The longest wait before another try, when quarantine workers cannot even start."""


class Quarantine:
    """Spawns quarantine workers while suspects are due: a few at once, and more beside those that have lasted.

    A worker that has lasted for some seconds frees its place, so that a suspect that runs for an hour does not hold up
    the rest; the number of all of them is bounded too.
    """

    def __init__(
        self,
        url: str,
        registry: Registry,
        options: WorkerOptions,
        machine: Computer,
        telemetry: Telemetry,
        policies: StepPolicies = NO_POLICIES,
    ) -> None:
        self.url = url
        self.registry = registry
        self.options = options
        self.machine = machine
        self.telemetry = telemetry
        self.policies = policies
        self.loop = Loop("quarantine", self._tick)
        self._wanted = False
        self._children: dict[ChildProcess, float] = {}  # and when the trial of each has begun, or will at the latest
        self._starting: set[ChildProcess] = set()  # those that have given no sign of life yet
        self._ends: set[asyncio.Task[None]] = set()
        self._not_before = 0.0
        self._failures = 0
        self._full = False

    def wanted(self, due: bool, waiting: bool = False) -> None:
        """Note whether suspects are due, to run them in quarantine. A few workers also start for ``waiting`` suspects.

        Those are due too, but their queue is full: only a worker that is there when a place is free can take it.
        """
        due = due or (waiting and len(self._children) < limits.QUARANTINE_TRIAL_WORKERS)
        if due and not self._wanted:
            self.loop.wake()
        self._wanted = due

    async def stop(self, hurry: asyncio.Event) -> None:
        """Ask the quarantine workers under way to stop, in a hurry if need be; those that do not are killed."""
        await self.loop.stop()
        self._starting.clear()  # those that end before they are up do so because they are told to
        children = [child for child in self._children if child.returncode is None]
        for child in children:
            child.terminate()
        hurrying = asyncio.create_task(self._hasten(children, hurry))
        try:
            async with asyncio.timeout(self.options.stop_seconds + limits.END_GRACE_SECONDS):
                for child in children:
                    await child.wait()
        except TimeoutError:
            for child in children:
                if child.returncode is None:
                    child.kill()
                await child.wait()
        hurrying.cancel()
        if self._ends:
            await asyncio.wait(self._ends)

    async def _hasten(self, children: Sequence[ChildProcess], hurry: asyncio.Event) -> None:
        await hurry.wait()
        for child in children:
            if child.returncode is None:
                child.terminate()

    async def _tick(self) -> float:
        if not self._wanted:
            return 60.0
        wait = self._until_a_place()
        if wait > 0:
            return wait
        self._wanted = False
        self.telemetry.count("suspects_alone")
        # If we die here the child runs on or dies by itself; the suspects' rows are leased by the worker that has them.
        try:
            child = await self.machine.spawn(self.command(), self.environment())
        except (OSError, RuntimeError, MemoryError):
            self._wanted = True  # the system refuses it for now: the suspects still have to run
            raise
        now = self.machine.monotonic()
        self._starting.add(child)
        self._children[child] = now + limits.QUARANTINE_UP_SECONDS
        self._not_before = now + limits.QUARANTINE_SPACING_SECONDS
        end = asyncio.create_task(self._until_its_end(child), name="perdure quarantine")
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        return limits.QUARANTINE_SPACING_SECONDS

    def _until_a_place(self) -> float:
        """Seconds until another quarantine worker may be started; the end of one wakes the loop earlier."""
        now = self.machine.monotonic()
        full = len(self._children) >= limits.QUARANTINE_WORKERS
        if full and not self._full:
            log.warning("%d quarantine workers run, which is the limit: other suspects wait", len(self._children))
        self._full = full
        if full:
            return 60.0
        trial = sorted(since + limits.QUARANTINE_TRIAL_SECONDS for since in self._children.values())
        trial = [until for until in trial if until > now]
        place = trial[-limits.QUARANTINE_TRIAL_WORKERS] if len(trial) >= limits.QUARANTINE_TRIAL_WORKERS else now
        return max(place, self._not_before) - now

    async def _until_its_end(self, child: ChildProcess) -> None:
        silence = patience(self.options.lease_seconds, self.options.beat_seconds)
        code = await minded(child, silence, partial(self._up, child))
        del self._children[child]
        never_up = child in self._starting
        self._starting.discard(child)
        cannot_run = (code > 0 and code != EXIT_HUNG) or (code == 0 and never_up)
        self._not_before = 0.0
        if code == EXIT_HUNG:
            log.warning("a quarantine worker was hung by a process that it ran, and has ended itself; see its output")
        elif cannot_run:
            self._failures += 1
            wait = min(2.0**self._failures, AGAIN_SECONDS)
            self._not_before = self.machine.monotonic() + wait
            log.error("a quarantine worker cannot run (exit code %d, see its output); again in %g s", code, wait)
        elif code < 0:
            log.warning("a quarantine worker was killed by signal %d, likely because of a suspect that it ran", -code)
        self._failures = self._failures if cannot_run else 0
        self.loop.wake()

    def _up(self, child: ChildProcess) -> None:
        """A child runs: its trial begins now. Before, it could not take a suspect, and another would be as slow."""
        self._starting.discard(child)
        self._children[child] = self.machine.monotonic()
        self.loop.wake()

    def command(self) -> list[str]:
        """The command of a quarantine worker: this Python, the queues served and modules hosted here."""
        options = f"{self.options.lease_seconds},{self.options.beat_seconds},{self.options.stop_seconds}"
        served = [queue.queue for queue in self.registry.queues.values()], self.registry.labels
        return [
            sys.executable,
            "-P",
            "-m",
            "perdure.quarantined",
            options,
            encode(served).decode(),
            *self.registry.sources,
        ]

    def environment(self) -> dict[str, str]:
        """Our environment, with the store's URL (never an argument: it may hold a password) and the import path.

        What the program itself sets for steps goes along, so that a suspect is tried again as anywhere else.
        """
        policies = {POLICIES: self.policies.policies.encode()} if self.policies.policies else {}
        return {**inherited_environment(), "PERDURE_URL": self.url, **policies}


def report(before: Sequence[Process], freed: Sequence[Commit], alerts: Alerts) -> None:
    """Log how many of the processes freed from dead workers are suspects now, and how many of these run together."""
    known = {row.id: row for row in before}
    divided: dict[tuple[bool, int], list[Process]] = {}
    for commit in freed:
        old = known[commit.after.id]
        if (now := quarantine.company(commit.after)) and commit.after.due_at is not None and not commit.after.reminder:
            divided.setdefault((quarantine.is_suspect(old), now), []).append(commit.after)
    for (again, most), some in divided.items():
        many = len(some)
        how = "each alone" if most == 1 else f"at most {most} together"
        if again:
            log.warning("a quarantine worker died with %d suspects: they run again, %s", many, how)
        else:
            alerts.suspects(many, some[0], how)
