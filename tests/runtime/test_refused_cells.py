"""Cells and quarantine workers that the system refuses are waited for: that is no fault of a process either."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.clock import ChildProcess, Computer
from perdure.runtime import shortage
from perdure.runtime.options import WorkerOptions
from perdure.runtime.quarantine import Quarantine
from perdure.runtime.steps.isolated.fork_server import ForkServer
from perdure.telemetry import Telemetry
from tests.runtime import hard
from tests.runtime.conftest import LIMIT, engines_on, until
from tests.runtime.test_shortages import refused_threads, types


async def test_a_cell_that_the_system_refuses_is_waited_for_and_uses_up_no_attempt(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_AGAIN_SECONDS", 0.01)
    fork = ForkServer.fork
    refusals = [OSError(errno.EAGAIN, "fork"), OSError(errno.EMFILE, "pipe"), OSError(errno.ENOMEM, "fork")]

    def refusing(server: ForkServer, files: Sequence[int], sources: Sequence[str]) -> int:
        if refusals:
            raise refusals.pop()
        return fork(server, files, sources)

    monkeypatch.setattr(ForkServer, "fork", refusing)
    async with engines_on(sqlite_url) as opened:
        engine, _ = await opened(work=True, workflows=[hard.packs])
        with refused_threads():
            handle = await engine.start(hard.packs)
            await until(lambda: engine.metrics()["shortages"])
        await handle.result(LIMIT)
        assert await types(engine, handle.id) == ["STEP_COMPLETED", "STEP_COMPLETED", "COMPLETED"]
        assert engine.metrics()["shortages"] >= 4


class Ended:
    """A child that has ended well."""

    returncode = 0

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int:
        return 0


class Poor(Computer):
    """A machine that refuses the first child."""

    def __init__(self) -> None:
        self.asked = 0

    async def spawn(self, command: object, environment: object) -> ChildProcess:
        self.asked += 1
        if self.asked == 1:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return Ended()


async def test_a_suspect_runs_alone_later_when_the_system_refuses_its_worker_at_first() -> None:
    machine = Poor()
    quarantine = Quarantine("sqlite://:memory:", Registry(), WorkerOptions(), machine, Telemetry())
    quarantine.loop.after_error = 0.001
    quarantine.loop.start()
    quarantine.wanted(True)
    await until(lambda: machine.asked >= 2)
    await quarantine.loop.stop()


def test_what_is_refused_says_what_to_do_about_it() -> None:
    assert set(shortage._ADVICE) == {
        "threads", "descriptors", "memory", "child OS processes", "executors", shortage.HUNG_STEPS,
    }  # fmt: skip
