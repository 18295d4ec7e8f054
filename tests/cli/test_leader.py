"""Leaders at the terminal: who leads in what, and one that is asked to stop, on both stores."""

from __future__ import annotations

from perdure import Engine
from perdure.clock import SECOND
from perdure.kernel.leader import Leader
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


async def two(engine: Engine) -> None:
    """One program leads, another one has led."""
    now = await engine.store.now()
    leads = Leader("import", 1, 7, "one", "paris:12", now, now + 959 * SECOND)
    await engine.store.records(Leader, [leads, Leader("audit", 1, 2, "two", "rome:3", now - 9 * SECOND, now)])


def test_leaders_are_listed_and_one_is_asked_to_stop(terminal: Terminal, working: Working) -> None:
    assert terminal("leader", "ls").has("no program has ever led here")
    working(two)
    said = terminal("leader", "ls")
    assert said.code == 0 and said.has("leader program term since until why")
    assert said.has("audit none (last: rome:3) 2 ")
    assert said.has("import paris:12 7 ", " in 15 min")  # also if the list is asked for after most of a minute
    released = terminal("leader", "release", "import", "--who", "ana", "--why", "a new version")
    assert released.has("import paris:12 7 ", "released by ana: a new version")
    [audit, leader] = terminal("leader", "ls", "--json").json
    assert (audit["leads"], leader["leads"], leader["released"], leader["origin"]) == (False, True, True, "cli")
    refused = terminal("leader", "release", "audit")
    assert refused.code != 0 and "no program leads in audit now" in refused.err
