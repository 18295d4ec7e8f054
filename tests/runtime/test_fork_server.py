"""The fork server, from which cells are forked: shared by the workers of a program, replaced when it is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from perdure import limits
from perdure.errors import ProcessFailed
from perdure.runtime.steps.isolated import fork_server
from perdure.runtime.steps.isolated.fork_server import ForkServer
from tests.runtime import hard
from tests.runtime.conftest import LIMIT, Open

on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
ALL = [hard.crashes, hard.numbers, hard.stands]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ForkServer:
    """The fork server of all workers that are opened now; it has not been started yet."""
    made = ForkServer()
    monkeypatch.setattr(fork_server, "_shared", made)
    return made


def pid(server: ForkServer) -> int:
    assert server._process is not None
    return server._process.pid


@on_sqlite
async def test_workers_of_a_program_share_a_fork_server_which_ends_with_the_last_of_them(
    opened: Open, server: ForkServer
) -> None:
    one, _ = await opened(work=True, workflows=ALL)
    assert server._process is None, "nothing is started before its first cell"
    first = (await (await one.start(hard.stands)).result(LIMIT))[0]
    other, _ = await opened(work=True, workflows=ALL)
    await one.close()
    second = (await (await other.start(hard.stands)).result(LIMIT))[0]
    assert first == second == pid(server)
    await other.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@on_sqlite
async def test_a_cell_has_what_its_worker_has_when_the_cell_starts_and_random_numbers_of_its_own(
    opened: Open, server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_CALLS", 1)
    engine, _ = await opened(work=True, workflows=ALL)
    _, folder, said, path, drawn = await (await engine.start(hard.stands)).result(LIMIT)
    assert (folder, said) == (os.getcwd(), "")
    assert path in sys.path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_TEST_WHERE", "shöp = here\n")
    again = await (await engine.start(hard.stands)).result(LIMIT)
    assert again[:3] == (pid(server), str(tmp_path), "shöp = here\n")
    assert again[4] != drawn


@on_sqlite
async def test_a_fork_server_that_is_killed_is_replaced_and_its_cells_live_and_die_as_ever(
    opened: Open, server: ForkServer
) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    (number,) = await (await engine.start(hard.numbers, 1)).result(LIMIT)
    former = pid(server)
    os.kill(former, signal.SIGKILL)
    assert await (await engine.start(hard.numbers, 1)).result(LIMIT) == [number]
    os.kill(number, signal.SIGKILL)
    assert await (await engine.start(hard.crashes, "exit")).result(LIMIT) == 2
    assert pid(server) != former
    metrics = engine.metrics()
    assert (metrics["cells_started"], metrics["cells_crashed"]) == (3, 1)


@on_sqlite
async def test_a_cell_whose_time_to_begin_is_over_before_there_is_a_fork_server_is_killed_too(
    opened: Open, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CELL_START_SECONDS", 0.001)
    monkeypatch.setenv("PERDURE_TEST_HANGING", "1")
    engine, _ = await opened(work=True, workflows=ALL)
    with pytest.raises(ProcessFailed, match="did not begin within"):
        await (await engine.start(hard.numbers, 1)).result(LIMIT)


@on_sqlite
async def test_a_fork_server_ends_when_its_program_has_died(opened: Open, server: ForkServer) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    await (await engine.start(hard.numbers, 1)).result(LIMIT)
    assert server._process is not None and server._channel is not None
    server._channel.close()  # as the system does
    assert server._process.wait(LIMIT) == 0


def test_a_fork_of_a_program_has_a_fork_server_of_its_own(server: ForkServer) -> None:
    server.program = os.getppid()
    other = fork_server.attach()
    assert other is not server
    fork_server.detach(other)
