"""What an operator sees of workers: perdure workers, on both stores."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from perdure import Engine
from perdure.kernel.figures import figures_of
from perdure.kernel.names import id_text
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Program, Terminal


def test_workers_lists_who_lives_what_each_serves_and_how_much_it_holds(
    terminal: Terminal, working: Working, tmp_path: object
) -> None:
    async def hold(engine: Engine) -> None:
        await engine.start(till.holding.options(key="H-1"), str(tmp_path))
        assert engine.worker is not None
        while figures_of((await engine.store.workers())[0].figures).held != 1:
            engine.worker.heartbeat.loop.wake()
            await engine.store.now()
        told.append(id_text(engine.worker.incarnation.id))
        told.append(await asyncio.to_thread(terminal, "workers", "--utc"))
        told.append(await asyncio.to_thread(terminal, "workers", "--json"))

    told: list[Any] = []
    working(hold)
    id, people, programs = told
    name = f"{socket.gethostname()}:{os.getpid()}"
    assert people.has("worker state since held slots steps/s ends/s next beat id queues schema workflows")
    assert people.has(f"{name} alive ", " UTC 1 2,000 ", f" {id} counter ", "holding", "sale")
    [one] = programs.json
    assert (one["id"], one["pid"], one["held"], one["queues"]) == (id, str(os.getpid()), 1, ["counter"])
    assert "tests.cli.till:approval" in one["workflows"] and one["state"] == "alive"


def test_without_workers_it_says_so_and_a_dead_one_is_not_listed(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    programs.append(sqlite_terminal.program("worker", "tests.cli.till"))
    programs[0].pid_hosting()
    assert len(sqlite_terminal("workers", "--json").json) == 1
    programs[0].signal(15)
    assert programs[0].wait() == 0
    assert sqlite_terminal("workers").out == "no worker is alive\n"
