"""How an operator sees that the clock was put back, and has the store's time come into step, on both stores."""

from __future__ import annotations

from datetime import datetime

from tests.cli.terminal import Terminal


def test_the_clock_is_shown_and_mended_at_the_terminal(terminal: Terminal) -> None:
    assert terminal("migrate").code == 0
    shown = terminal("clock")
    for words in ("store's time", "machine's clock", "they are in step"):
        assert words in shown.out
    told = terminal("clock", "mend", "--who", "Ann", "--why", "a schedule", "--json").json
    assert (told["mending"], told["who"], told["why"], told["origin"]) == (True, "Ann", "a schedule", "cli")
    apart = datetime.fromisoformat(told["at"]) - datetime.fromisoformat(told["machine_at"])
    assert abs(apart.total_seconds()) < 1
    assert terminal("clock", "leave", "--json").json["mending"] is False
