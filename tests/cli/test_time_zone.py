"""Times of day at the terminal: in the machine's time zone, which is named, or in UTC if that is wanted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from perdure.cli import text
from tests.cli.terminal import Terminal


@pytest.fixture
def riga(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine two hours east of Greenwich, three in summer."""
    monkeypatch.setenv("TZ", "EET-2EEST,M3.5.0/3,M10.5.0/4")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("riga")
def test_a_time_is_local_and_names_its_zone_in_winter_and_in_summer() -> None:
    winter, summer = datetime(2026, 1, 5, 12, tzinfo=UTC), datetime(2026, 7, 5, 12, tzinfo=UTC)
    assert text.clock(winter, utc=False) == "2026-01-05 14:00:00 EET"
    assert text.clock(summer, utc=False) == "2026-07-05 15:00:00 EEST"
    assert text.clock(summer, utc=True) == "2026-07-05 12:00:00 UTC"


@pytest.mark.usefixtures("riga")
def test_the_first_and_the_last_day_of_the_calendar_are_shown_too() -> None:
    for extreme in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)):
        assert text.clock(extreme, utc=False)


@pytest.mark.usefixtures("riga")
@pytest.mark.parametrize(
    "words",
    [("show", "A-1"), ("history", "A-1"), ("clock",), ("schedule", "ls"), ("schedule", "show", "nightly")],
    ids=" ".join,
)
def test_every_command_that_shows_times_shows_them_in_utc_if_asked(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").code == 0
    terminal("terminate", "A-1")
    terminal("schedule", "put", "nightly", "tests.cli.till:approval", "A-2", "--every", "7d")
    local, utc = terminal(*words).out, terminal(*words, "--utc").out
    assert (" EE" in local, " UTC" in local) == (True, False)
    assert (" EE" in utc, " UTC" in utc) == (False, True)


@pytest.mark.usefixtures("riga")
def test_programs_get_times_in_utc(terminal: Terminal) -> None:
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").code == 0
    assert terminal("show", "A-1", "--json").json["created_at"].endswith("Z")
    assert terminal("clock", "--json").json["at"].endswith("Z")
