"""Kinds with limits at the terminal, on both stores: how many run and wait, what the limits are, who has set them."""

from __future__ import annotations

from perdure import Engine, receive, workflow
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


@workflow(name="parcel")
async def parcel(name: str) -> str:
    return name + await receive("go", str)


async def two_run(engine: Engine) -> None:
    """Two processes of a kind that wait for a signal."""
    await engine.start(parcel, "a")
    await engine.start(parcel, "b")


def test_a_kind_is_limited_and_seen_and_its_limits_are_taken_away(terminal: Terminal, working: Working) -> None:
    working(two_run)
    assert terminal("kind", "ls").has("no kind has limits")
    said = terminal(
        "kind", "limit", "parcel", "--running", "5", "--starts", "10", "--per", "2m", "--why", "a small hall"
    )
    assert said.has("kind waiting running oldest limits set")
    assert said.has("parcel 0 2 ", " 2 of 5 at once, 10 in 2 min by ", ": a small hall")
    [seen] = terminal("kind", "list", "--json").json
    assert (seen["kind"], seen["running"], seen["starts"], seen["per"], seen["origin"]) == (
        "parcel",
        5,
        10,
        120.0,
        "cli",
    )
    assert (seen["waiting"], seen["admitted"]) == (0, 2)
    assert terminal("kind", "unlimit", "parcel", "--who", "bob").has("parcel 0 2 ", " none by bob, ")
    said = terminal("kind", "limit", "parcel")
    assert (said.code, said.out) == (2, "")
    assert "Limits() limits nothing" in said.err
