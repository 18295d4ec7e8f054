"""A victim is as a program that was started by itself: nothing of the prepared program shows, and each is alone."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kill.harness import LIMIT, Harness, said
from tests.kill.victim import ENVIRONMENT
from tests.source import ROOT

PORTRAIT = "tests.kill.portrait"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    """Victims without a database."""
    harness = Harness("", tmp_path)
    yield harness
    await harness.end()


async def test_a_victim_is_as_a_program_that_was_started_by_itself(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await harness.start(PORTRAIT, "first")
    monkeypatch.setenv("PERDURE_TEST_POINT", "set when the prepared program ran already")
    fresh = subprocess.run(
        [sys.executable, "-m", PORTRAIT, "two words", "é"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        check=False, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, start_new_session=True,
    )  # fmt: skip
    same, chance = fresh.stdout.decode().splitlines()
    victims = [await harness.start(PORTRAIT, "two words", "é") for _ in range(2)]
    wanted = json.loads(same.partition(" ")[2])
    for one in victims:
        found = json.loads(await said(one, "same"))
        assert {name: (found[name], value) for name, value in wanted.items() if found[name] != value} == {}
    drawn = [chance.partition(" ")[2], *[await said(one, "chance") for one in (before, *victims)]]
    assert len(set(drawn)) == 4, "each draws its own numbers"
    assert {await one.wait() for one in (before, *victims)} == {fresh.returncode}


async def test_a_victim_is_killed_by_itself_and_its_end_is_seen_while_others_live(harness: Harness) -> None:
    one, other = [await harness.start(PORTRAIT, "stays") for _ in range(2)]
    for child in (one, other):
        await said(child, "chance")
    one.kill()
    assert await asyncio.wait_for(one.wait(), LIMIT) == -signal.SIGKILL
    assert one.returncode == -signal.SIGKILL and other.returncode is None
    with pytest.raises(ProcessLookupError):
        one.kill()
    other.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(other.wait(), LIMIT) == -signal.SIGTERM


async def test_who_looks_first_whether_a_victim_has_ended_does_not_keep_others_from_hearing(harness: Harness) -> None:
    """Its end comes while the event loop is busy, and the first look at it is not the loop's."""
    one = await harness.start(PORTRAIT, "stays")
    await said(one, "chance")
    one.kill()
    assert select.select([one._program.link], [], [], LIMIT)[0]
    assert one.returncode in (None, -signal.SIGKILL)
    assert await asyncio.wait_for(one.wait(), LIMIT) == one.returncode == -signal.SIGKILL
