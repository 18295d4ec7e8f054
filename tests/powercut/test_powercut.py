"""Power cuts under SQLite, the short form; ``make powercut`` makes thousands of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.store.sqlite.connection import Connection
from tests.powercut.cut import Fate, images
from tests.powercut.recorder import Act, Deed, Recorder, Unreachable
from tests.powercut.session import quick_folder, session

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for lives and ends. Where Python carries SQLite inside itself, nothing can be put between the two."""
    with quick_folder() as folder:
        try:
            with Recorder(folder).recording():
                pass
        except (Unreachable, OSError, AttributeError) as why:
            pytest.skip(str(why))
        yield folder


async def test_after_a_power_cut_everything_acknowledged_is_there_and_every_law_holds(folder: Path) -> None:
    tally = await session(100, folder, seed=3, tries=50)
    assert tally.lost == []
    assert set(tally.cuts) == set(Fate)
    assert tally.acknowledged > 1000
    assert tally.finished >= 1


async def test_the_cuts_find_what_a_weaker_setting_loses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def weaker(connection: Connection, wanted: bool) -> None:
        connection.raw.execute("PRAGMA synchronous = NORMAL")

    monkeypatch.setattr(Connection, "sync", weaker)
    assert (await session(60, folder, seed=3, tries=60)).lost


def test_what_was_synced_stays_and_the_rest_has_its_fate() -> None:
    acts = [Act(Deed.WRITE, "f", 0, b"a" * 1024), Act(Deed.SYNC, "f"), Act(Deed.WRITE, "f", 512, b"b" * 1024)]
    found = {fate: images({}, acts, fate, random.Random(1))["f"] for fate in Fate}
    assert found[Fate.LOST] == b"a" * 1024
    assert found[Fate.KEPT] == b"a" * 512 + b"b" * 1024
    torn = {images({}, acts, Fate.TORN, random.Random(n))["f"] for n in range(20)}
    assert b"a" * 512 + b"b" * 512 in torn
    assert b"a" * 1024 + b"b" * 512 in torn
