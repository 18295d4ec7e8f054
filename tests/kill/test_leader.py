"""A program that leads is killed, or stopped past its lease: another one leads then, and the first one does no more."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.engine import Engine
from tests.kill.harness import LIMIT, Harness, said
from tests.kill.victim import Victim

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
LEASE = 1.5


class Programs:
    """Programs that want to lead, on one database and with one ledger."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.ledger = Path(harness.ledger)

    async def start(self) -> Victim:
        """Start one, and wait until it asks."""
        child = await self.harness.start("tests.kill.leading", self.harness.url, str(LEASE), str(self.ledger))
        await said(child, "ready")
        return child

    def lines(self) -> list[tuple[int, int]]:
        """The term and the program of each piece of work, in the order in which it was done."""
        return [(int(term), int(pid)) for term, pid in map(str.split, self.ledger.read_text().splitlines())]


@pytest.fixture
async def programs(harness: Harness) -> AsyncIterator[Programs]:
    """A database that is ready."""
    async with Engine(harness.url, migrate=True):
        yield Programs(harness)


async def test_a_leader_that_is_killed_is_followed_by_another_when_its_lease_is_over(programs: Programs) -> None:
    first = await programs.start()
    term = int(await said(first, "leads"))
    second = await programs.start()
    first.send_signal(signal.SIGKILL)
    assert int(await said(second, "leads")) > term
    lines = programs.lines()
    assert lines == sorted(lines), "nobody has worked with a term that was over"
    assert {pid for of, pid in lines if of == term} == {first.pid}


async def test_a_leader_that_was_stopped_past_its_lease_does_nothing_when_it_goes_on(programs: Programs) -> None:
    first = await programs.start()
    term = int(await said(first, "leads"))
    second = await programs.start()
    first.send_signal(signal.SIGSTOP)
    later = int(await said(second, "leads"))
    assert later > term
    first.send_signal(signal.SIGCONT)
    assert int(await said(first, "lost")) == term
    second.send_signal(signal.SIGKILL)
    assert int(await said(first, "leads")) > later, "it asks again, as any other"
    lines = programs.lines()
    assert lines == sorted(lines), "it worked with a term that was over"


async def test_a_leader_whose_program_ends_leaves_its_place_at_once(programs: Programs) -> None:
    first = await programs.start()
    assert await said(first, "leads") == "1"
    second = await programs.start()
    async with Engine(programs.harness.url) as engine:
        await engine.leaders.release("import", who="ana", why="a new version")
        assert await asyncio.wait_for(said(first, "lost"), LIMIT) == "1"
        assert await said(second, "leads") == "2"
        assert (await engine.leaders.state("import")).term == 2
