"""An application that calls ``socket.setdefaulttimeout``: the sockets between OS processes block all the same."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
from collections.abc import Iterator, Sequence
from inspect import getclosurevars

import pytest

from perdure.authoring.registry import Registry
from perdure.cli import pool
from perdure.cli.pool import WorkerPool, WorkerSlot
from perdure.cli.worker_process import ProcessOptions
from perdure.clock import Computer, Linked
from perdure.runtime.options import WorkerOptions
from perdure.runtime.os_process import signs, watch_parent
from perdure.runtime.quarantine import Quarantine
from perdure.runtime.steps.isolated import fork_server
from perdure.runtime.steps.isolated.fork_server import ForkServer
from perdure.telemetry import Telemetry
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.test_lifeline import NEVER_SECONDS

BLOCKS, DOES_NOT = 10, 11
TELLS = f"import os, sys; sys.exit({BLOCKS} if os.get_blocking(int(sys.argv[1])) else {DOES_NOT})"


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    socket.setdefaulttimeout(10.0)
    yield
    socket.setdefaulttimeout(None)


async def test_the_line_of_a_child_blocks() -> None:
    child = await Computer().spawn([sys.executable, "-c", TELLS, "0"], dict(os.environ))
    assert isinstance(child, Linked)
    with child.line:
        assert await child.wait() == BLOCKS


async def test_the_line_of_a_worker_of_a_pool_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(options: ProcessOptions, line: int) -> Sequence[str]:
        return [sys.executable, "-c", TELLS, str(line)]

    monkeypatch.setattr(pool, "command", command)
    workers = WorkerPool(ProcessOptions([]), "sqlite://:memory:", 1)
    workers._stopping = asyncio.Event()
    assert await workers._fill(WorkerSlot(0)) == BLOCKS


async def test_only_the_end_of_the_line_is_the_parents_death() -> None:
    parent, child = socket.socketpair()
    closed, seen = False, list[bool]()
    heard = asyncio.Event()

    def stop() -> None:
        seen.append(closed)
        heard.set()

    with child:
        assert not os.get_blocking(child.fileno())
        watch_parent(child.fileno(), stop, NEVER_SECONDS)
        async with asyncio.timeout(LIMIT):
            for _ in range(50):  # each byte shows that the thread still reads
                parent.send(b".")
                while select.select([child], [], [], 0)[0]:
                    await asyncio.sleep(0)
        closed = True
        parent.close()
        await asyncio.wait_for(heard.wait(), LIMIT)
    assert seen == [True]


def test_signs_of_life_leave_the_line_as_it_is_and_wait_for_nobody() -> None:
    socket.setdefaulttimeout(NEVER_SECONDS)
    parent, child = socket.socketpair()
    with parent, child:
        child.setblocking(True)
        sign = signs(child.fileno())
        with getclosurevars(sign).nonlocals["end"]:
            assert os.get_blocking(child.fileno())
            while select.select([], [child], [], 0)[1]:
                sign()
            sign()  # it is full


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_hard_steps_run_one_after_the_other_in_one_cell(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.runtime import hurried

    socket.setdefaulttimeout(hurried.SECONDS)  # the module may have been imported by another test
    server = ForkServer()
    monkeypatch.setattr(fork_server, "_shared", server)
    engine, _ = await opened(work=True, workflows=[hurried.numbers_twice])
    first, second = await (await engine.start(hurried.numbers_twice)).result(LIMIT)
    assert first == second != os.getpid()
    assert engine.metrics()["cells_crashed"] == 0


class Vain(Computer):
    """A machine whose children end in order before they have given a sign of life."""

    def __init__(self) -> None:
        self.children = 0

    async def spawn(self, command: object, environment: object) -> Linked:
        self.children += 1
        ours, theirs = socket.socketpair()
        with theirs:
            return Linked(await asyncio.create_subprocess_exec("true"), ours)


async def test_a_quarantine_worker_that_ends_before_it_is_up_is_told_of_and_not_replaced_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Vain()
    quarantine = Quarantine("sqlite://:memory:", Registry(), WorkerOptions(), machine, Telemetry())
    quarantine.wanted(True)
    await quarantine._tick()
    await until(lambda: not quarantine._children)
    assert "a quarantine worker cannot run (exit code 0" in caplog.text
    assert quarantine._until_a_place() > 0
    await quarantine.stop(asyncio.Event())
