"""How an operator pauses automatic recovery, and is reminded of it, on both stores."""

from __future__ import annotations

from tests.cli.terminal import Terminal


def test_recovery_is_paused_and_resumed_at_the_terminal_and_whoever_looks_is_told(terminal: Terminal) -> None:
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").code == 0
    assert terminal("recovery").out == "automatic recovery is on\n"
    paused = terminal("recovery", "pause", "--who", "Ann", "--why", "the release is broken")
    assert paused.has("AUTOMATIC RECOVERY IS PAUSED by Ann", "because: the release is broken")
    told = terminal("recovery", "--json").json
    assert (told["paused_by"], told["paused_why"], told["origin"]) == ("Ann", "the release is broken", "cli")
    for verb in (["ps"], ["show", "A-1"]):
        said = terminal(*verb)
        assert said.err.startswith("perdure: AUTOMATIC RECOVERY IS PAUSED by Ann, ")
        assert said.err.endswith("because: the release is broken. `perdure recovery resume` ends it.\n")
    assert terminal("queue", "ls").out == "no queue has a limit, and nothing waits in any\n"
    assert terminal("recovery", "resume").out == "automatic recovery is on\n"
    assert terminal("ps").err == ""
