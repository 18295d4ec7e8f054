"""Circuit breakers at the terminal: how they stand and why, opened, closed and reset by hand, on both stores."""

from __future__ import annotations

from perdure import Engine
from perdure.clock import SECOND
from perdure.kernel.breaker import Circuit
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


async def some(engine: Engine) -> None:
    """One breaker has opened, one has counted a failure."""
    now = await engine.store.now()
    opened = Circuit("bank", 1, "open", now, now + 90 * SECOND, "3 attempts have failed: ConnectionError", opened=1)
    await engine.store.records(Circuit, [opened, Circuit("post", 1, since=now, failures=2, counted_from=now)])


def test_breakers_are_listed_with_since_when_until_when_and_why(terminal: Terminal, working: Working) -> None:
    assert terminal("breaker", "ls").has("no breaker has counted a failure, and none was set by hand")
    working(some)
    said = terminal("breaker", "ls")
    assert said.code == 0
    assert said.has("breaker state since until why")
    assert said.has("bank open ", " in 1 min ", " 3 attempts have failed: ConnectionError")
    assert said.has("post closed ", "2 failures counted")
    [bank] = terminal("breaker", "show", "bank", "--json").json
    assert (bank["name"], bank["state"], bank["opened"], bank["forced"]) == ("bank", "open", 1, False)
    assert terminal("breaker", "show", "unheard-of").has("unheard-of closed")


def test_a_person_opens_closes_and_resets_a_breaker_and_says_why(terminal: Terminal) -> None:
    assert terminal("breaker", "open", "bank", "--who", "ana", "--why", "it moves").has(
        "bank open ", "by ana: it moves"
    )
    assert terminal("breaker", "close", "bank", "--who", "bob").has("bank closed ", "by bob")
    [bank] = terminal("breaker", "ls", "--json").json
    assert (bank["state"], bank["forced"], bank["who"], bank["origin"]) == ("closed", True, "bob", "cli")
    assert terminal("breaker", "reset", "bank").has("bank closed ", "reset by hand")
    refused = terminal("breaker", "open", " ")
    assert refused.code == 2 and "the name of the breaker" in refused.err
