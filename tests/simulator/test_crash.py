"""Crash enumeration, short: whichever call to the store is a node's last, the outcome is the exact one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.simulator.broken import DEFECTS
from tests.simulator.broken.chase import ROOT
from tests.simulator.broken.defect import plant
from tests.simulator.enumeration.passage import played
from tests.simulator.enumeration.plots import PLOTS
from tests.simulator.enumeration.point import KILLS, SIDES, Call, Point
from tests.simulator.enumeration.tour import Points, points_at, seconds_after, toured

SHORT = ("purchase",)
LONG = {"almanac": 121, "visit": 17, "errand": 61, "purse": 61, "rounds": 61, "voyage": 61}
"""Of the places of these each so manieth is tried: an odd number, or all are before a call. `make crash` tries all."""
PAIRED = tuple(name for name, plot in PLOTS.items() if plot.pairs)
PATIENCE_SECONDS = 600
"""Of one test, on a machine that has much else to do: all of them together take half a minute of a core."""
LIVES = tuple(side for side in SIDES if side not in KILLS)
DOORS = {
    "start",
    "send",
    "claim",
    "commit",
    "enlist",
    "beat",
    "retire",
    "search",
    "history",
    "messages",
    "workers",
    "now",
}
"""What the scenarios call of the store, so that nothing is left out of the enumeration unseen."""


pytestmark = pytest.mark.timeout(PATIENCE_SECONDS)


@cache
def calls(name: str) -> Sequence[Call]:
    """The calls of a scenario without a blow: played once for all tests."""
    return played(PLOTS[name]).calls


def kills(name: str, every: int) -> list[Points]:
    return [(point,) for point in points_at(calls(name), KILLS)[::every]]


def sound(name: str, blows: list[Points]) -> None:
    tally = toured(PLOTS[name], blows)
    told = [f"{one.law}: {one.text}\nrepeat it: {one.command(name)}" for one in tally.failed]
    assert told == [] and tally.points + tally.pairs == len(blows)


@pytest.mark.parametrize("name", SHORT)
def test_a_node_may_be_killed_before_and_after_every_call(name: str) -> None:
    sound(name, kills(name, every=1))


@pytest.mark.parametrize("name", LONG)
def test_a_node_may_be_killed_at_many_places_of_a_longer_scenario(name: str) -> None:
    sound(name, kills(name, LONG[name]))


@pytest.mark.parametrize("name", PLOTS)
def test_a_connection_may_be_lost_before_and_after_some_calls(name: str) -> None:
    sound(name, [(point,) for point in points_at(calls(name)[10::60], LIVES)])  # `make crash` tries all


@pytest.mark.parametrize("name", PAIRED)
def test_a_second_kill_may_follow_the_first_one_anywhere(name: str) -> None:
    firsts = points_at(calls(name), KILLS)[4::35]
    sound(name, [pair for first in firsts for pair in seconds_after(PLOTS[name], first, KILLS, every=25)])


def test_every_role_and_door_is_among_what_is_enumerated() -> None:
    enumerated = [call for name in PLOTS for call in calls(name)]
    assert {call.role for call in enumerated} == {"client", "worker", "supervisor"}
    assert {call.door for call in enumerated} >= DOORS
    assert {call.door for call in enumerated if call.role == "supervisor"} >= {"workers", "search", "retire"}


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_the_same_blow_gives_the_same_history_to_the_byte(name: str) -> None:
    point = points_at(calls(name), ("after",))[20]
    first, second = played(PLOTS[name], [point]), played(PLOTS[name], [point])
    assert first.history.digest() == second.history.digest() and first.calls == second.calls


def test_a_point_is_written_as_it_is_read_and_told_in_the_timeline() -> None:
    point = Point.read("worker-1:9:after")
    assert str(point) == "worker-1:9:after"
    told = played(PLOTS["purchase"], [point]).history.timeline()
    assert ": died after" in told and "is killed" in told and told.endswith("no law was broken")
    with pytest.raises(ValueError, match="no side of a call"):
        Point.read("worker-1:9:sideways")


@pytest.mark.parametrize(
    ("defect", "plot", "every"),
    [
        ("what an ended worker held is not freed", "purchase", "11"),
        ("every attempt of a step has a key of its own", "purchase", "2"),
        pytest.param("children are started anew when another worker goes on", "voyage", "1", marks=pytest.mark.long),
    ],
)
def test_a_broken_engine_that_seems_sound_without_a_crash_is_noticed(
    defect: str, plot: str, every: str, tmp_path: Path
) -> None:
    """A canary: an enumeration that cannot fail proves nothing."""
    [broken] = [one for one in DEFECTS if one.name == defect]
    path = os.pathsep.join((str(plant(broken, tmp_path)), str(ROOT)))
    hunt = subprocess.run(
        [sys.executable, "-m", "tests.simulator.enumeration.hunt", plot, every],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(hunt.stdout)
    assert found["law"] and len(found["at"]) == 1, "the passage without a blow is sound, and one with a blow is not"
