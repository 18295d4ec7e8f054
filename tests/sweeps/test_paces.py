"""How often sweeps look, how long ago they last did, and how far they are: set, and seen from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import limits, settings
from perdure.client import recovery
from perdure.client.health import HealthFinding, HealthLevel, health
from perdure.client.recovery import Recovery, RecoveryProgress
from perdure.errors import DefinitionError
from perdure.kernel.sweep_pass import SWEEPS, WAVE_SECONDS, Passes
from perdure.runtime.options import WorkerOptions
from perdure.runtime.supervisor import Supervisor
from perdure.runtime.sweeps import owner_gone, process_idle
from tests.sweeps.test_sweep_log import QUIET, made, passed
from tests.sweeps.watch import Watch


async def of_sweeps(watch: Watch) -> HealthFinding:
    """What health says of the sweeps."""
    [found] = [one for one in (await health(watch.store)).findings if one.check == "sweeps"]
    return found


async def orphans(watch: Watch) -> RecoveryProgress:
    """How far the sweep for processes of ended workers is."""
    [found] = [one for one in await Recovery(watch.store).progress() if one.sweep == "owner gone"]
    return found


# -- how often -----------------------------------------------------------------------------------------------------


async def test_a_sweep_looks_at_the_pace_that_is_set_and_another_terminal_sees_it(watch: Watch) -> None:
    context = await watch.context()
    context.paces = {"process idle": 0.5}
    supervisor = Supervisor(context)
    loops = {loop.name: loop for loop in supervisor.loops}
    for name, seconds in (("sweep process idle", 0.5), ("sweep owner gone", owner_gone.SECONDS)):
        assert 0.9 * seconds <= await loops[name]._tick() <= 1.1 * seconds
    await supervisor.log.look()
    seen = {one.sweep: one.every for one in await Recovery(watch.store).sweeps()}
    assert seen == {"process idle": 0.5, "owner gone": owner_gone.SECONDS}
    assert supervisor._periods.keys() == set(SWEEPS)


def test_paces_are_set_by_the_program_and_the_file_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = WorkerOptions(sweeps={"owner_gone": 2, "process idle": 30}).sweeps
    assert settings.sweep_paces(own) == {"owner gone": 2.0, "process idle": 30.0}
    (tmp_path / "perdure.toml").write_text("[sweeps]\nowner_gone = 1.5\n")
    assert settings.sweep_paces(own) == {"owner gone": 1.5, "process idle": 30.0}
    assert process_idle.SECONDS == 10.0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("sweeps = 5", "have no names"),
        ("[sweeps]\nowner_gone = 0", "from 0.05 to 3600"),
        ("[sweeps]\nowner_gone = true", "from 0.05 to 3600"),
        ("[sweeps]\nowner_gone = nan", "from 0.05 to 3600"),
        ("[sweeps]\nrecord_unsound = 5", "There are finished_long_ago, lease_lapsed"),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text(wrong)
    with pytest.raises(DefinitionError, match=text):
        settings.sweep_paces()


# -- how long ago --------------------------------------------------------------------------------------------------


async def test_health_says_how_long_ago_the_sweeps_have_passed_and_warns_of_those_that_do_not(watch: Watch) -> None:
    assert (await of_sweeps(watch)).text == "no worker is alive, so nothing is swept"
    log = made(await watch.context(), "owner gone", "process idle")
    assert (await of_sweeps(watch)).text == "no sweep has passed yet"
    passed(log, "process idle")
    passed(log, "owner gone")
    await log.look()
    await watch.passed(20)
    assert (await of_sweeps(watch)).text == "every sweep has passed within 20 s"
    passed(log, "process idle")
    await log.look()
    await watch.passed(QUIET - 20)
    passed(log, "process idle")
    await log.look()
    found = await of_sweeps(watch)
    assert found.level is HealthLevel.WARNING
    assert f"sweeps do not pass: owner gone, {QUIET:.0f} s ago. What they would find stays stuck" in found.text
    passed(log, "owner gone")
    await log.look()
    assert (await of_sweeps(watch)).level is HealthLevel.PASSING


async def test_a_sweep_that_is_slow_because_it_was_told_so_is_not_silent(watch: Watch) -> None:
    log = made(await watch.context())
    log._periods = {"process idle": 600.0}
    passed(log, "process idle")
    await log.look()
    await watch.passed(1200)
    assert (await of_sweeps(watch)).level is HealthLevel.PASSING
    await watch.passed(limits.SWEEP_SILENT_SECONDS + 1)
    assert (await of_sweeps(watch)).level is HealthLevel.WARNING


# -- how far -------------------------------------------------------------------------------------------------------


async def test_it_is_seen_how_far_a_recovery_is(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    monkeypatch.setattr(recovery, "SWEEP_ROWS", 4)
    supervisor = Supervisor(await watch.context())
    [loop] = [loop for loop in supervisor.loops if loop.name == "sweep owner gone"]
    ended = await watch.trial.worker("ended")
    for _ in range(5):
        await watch.trial.owned(ended)
    await watch.store.retire(ended, None, False)
    before = await orphans(watch)
    assert (before.since, before.examined, before.recovered, before.waiting, before.more) == (None, 0, 0, 4, True)
    for examined, waiting in ((2, 3), (4, 1), (5, 0)):
        await loop._tick()
        await supervisor.log.look()
        now = await orphans(watch)
        assert (now.examined, now.recovered, now.waiting, now.more) == (examined, examined, waiting, False)
        assert now.total == 5 and now.since is not None and now.at is not None
    await Recovery(watch.store).pause(who="Ann")
    await watch.passed(WAVE_SECONDS + 1)
    another = await watch.trial.worker("another")
    await watch.trial.owned(another)
    await watch.store.retire(another, None, False)
    await loop._tick()
    await supervisor.log.look()
    left = await orphans(watch)
    assert (left.examined, left.recovered, left.waiting) == (1, 0, 1), "another wave, of which nothing is freed"
    assert left.since is not None and now.since is not None and left.since > now.since


def test_the_waves_of_two_workers_are_one_unless_they_lie_apart() -> None:
    one = Passes().passed(10, "a", 1, 5, 3, 0)
    two = Passes().passed(20, "b", 1, 7, 4, 0)
    for both in (one.and_then(two), two.and_then(one)):
        assert (both.wave_since, both.wave_at, both.examined, both.recovered) == (10, 20, 12, 7)
    idle = both.and_then(Passes().passed(30, "a", 1, 9, 0, 0))
    assert (idle.at, idle.wave_at, idle.examined, idle.recovered) == (30, 20, 12, 7)
    late = 20 + round(WAVE_SECONDS * 1_000_000) + 1
    again = idle.passed(late, "a", 1, 1, 1, 0)
    assert (again.wave_since, again.examined, again.recovered) == (late, 1, 1)
