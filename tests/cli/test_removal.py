"""Removal and release of keys on the command line."""

from __future__ import annotations

from tests.cli.terminal import Terminal


def test_rm_takes_away_what_has_ended_and_the_rest_only_by_force(terminal: Terminal) -> None:
    for key in ("A-1", "A-2"):
        terminal("start", "tests.cli.till:approval", key, "--key", key)
    terminal("terminate", "A-1")
    said = terminal("rm", "A-1", "A-2", "--why", "it is private")
    assert said.out == "approval A-1: removed\n"
    assert "A-2: cannot remove a process that is running: end it first, or force the removal" in said.err
    assert terminal("rm", "A-2", "--force").out == "approval A-2: removed\n"
    for key in ("A-1", "A-2"):
        assert f"no process has the id or key '{key}'" in terminal("show", key).err
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").out.startswith("started")


def test_a_key_is_released_once_its_process_has_ended(terminal: Terminal) -> None:
    first = terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1", "--json").json["id"]
    assert "cannot release the key of a process that is running" in terminal("key", "release", "A-1").err
    terminal("terminate", "A-1")
    said = terminal("key", "release", "A-1", "--who", "Ann", "--why", "she starts it again")
    assert said.out == "approval A-1: its key is released\n"
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").out.startswith("started")
    assert terminal("history", first).has("key released", "A-1 by Ann because: she starts it again")
