"""Why a process does not move, and whether the whole is healthy, as an operator reads it, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, ProcessFailed
from perdure.cli import exit_code
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


async def some(engine: Engine) -> None:
    """One that has failed, one that waits for a signal."""
    failed = await engine.start(till.refusal.options(key="R-1"), "no bread")
    with pytest.raises(ProcessFailed):
        await failed.result(10)
    waits = await engine.start(till.approval.options(key="A-1"), "A-1")
    while (await waits.status()).mover != "message":
        await asyncio.sleep(0.01)


def test_what_stands_still_is_explained_with_commands_and_ends_with_3(terminal: Terminal, working: Working) -> None:
    working(some)
    said = terminal("explain", "R-1")
    assert said.code == exit_code.STANDS_STILL
    assert said.has("cause retries_spent: it has failed: ") and said.has("ValueError: no bread")
    assert said.has("next person: nothing, until a person does something")
    assert said.has("perdure retry ") and said.has("it would go on in run 2, and keep ")
    told = terminal("explain", "R-1", "--json").json
    assert (told["cause"], told["mover"], told["stands_still"]) == ("retries_spent", "person", True)
    assert told["proposals"][0]["verb"] == "retry" and told["proposals"][0]["accepted"] is True


def test_what_waits_for_its_message_is_explained_and_ends_with_0(terminal: Terminal, working: Working) -> None:
    working(some)
    said = terminal("explain", "A-1")
    assert said.code == exit_code.DONE
    assert said.has("cause waits_for_message: it waits for signal yes") and said.has("perdure signal ")


def test_health_of_the_whole_says_what_waits_for_a_worker(terminal: Terminal, working: Working) -> None:
    working(some)
    said = terminal("health")
    assert said.code == 2 and said.has("workers critical no worker is alive")
    told = terminal("health", "--json").json
    assert told["level"] == "critical" and {one["check"] for one in told["findings"]} >= {"workers", "queues", "clock"}
