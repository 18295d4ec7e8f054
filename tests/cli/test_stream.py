"""Event streams at the terminal: made, shown with how far behind they are, looked into and removed, on both stores."""

from __future__ import annotations

from perdure.engine import Engine
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal
from tests.streams.flows import parcel


async def some(engine: Engine) -> None:
    """One process has run to its end."""
    engine.registry.add(parcel)
    await (await engine.start(parcel.options(key="A-17"), "tea")).result(20)


def test_a_stream_is_made_shown_changed_and_removed(terminal: Terminal, working: Working) -> None:
    assert terminal("stream", "ls").has("there is no event stream")
    made = terminal("stream", "put", "audit", "--who", "ana", "--why", "the law")
    assert made.code == 0 and made.has("audit all all programs 0 nobody")
    assert made.has("stream kinds events to behind oldest reader")
    working(some)
    assert terminal("stream", "show", "audit").has("audit all all programs 5 ", " nobody")
    changed = terminal("stream", "put", "audit", "--kind", "parcel", "--kind", "order", "--events", "lifecycle",
                       "--to", "https://example.org/s3cret")  # fmt: skip
    assert changed.has("audit order, parcel lifecycle https://example.org 5") and not changed.has("s3cret")
    [seen] = terminal("stream", "ls", "--json").json
    assert (seen["kinds"], seen["behind"], seen["origin"]) == (["order", "parcel"], 5, "cli")
    assert terminal("stream", "rm", "audit").has("event stream audit was removed")
    refused = terminal("stream", "rm", "audit")
    assert refused.code == 1 and "perdure stream ls" in refused.err


def test_what_comes_next_is_shown_and_stays_there(terminal: Terminal, working: Working) -> None:
    terminal("stream", "put", "audit")
    assert terminal("stream", "tail", "audit").has("event stream audit has got everything")
    working(some)
    for _ in range(2):
        said = terminal("stream", "tail", "audit", "--limit", "3", "--utc")
        assert said.code == 0 and said.has("position at process run number type name payload")
        assert (
            said.has("parcel A-17 1 0 created", '["tea"]')
            and said.has("step_completed pack")
            and not said.has("completed 4")
        )
    records = terminal("stream", "tail", "audit", "--json").json
    assert [one["type"] for one in records][-1] == "completed"


def test_a_stream_begins_with_what_is_stored(terminal: Terminal, working: Working) -> None:
    working(some)
    assert terminal("stream", "put", "audit", "--since", "beginning").has("audit all all programs 5 ", " nobody")
    assert terminal("stream", "put", "late", "--since", "2h").has("late all all programs 5 ")
    assert terminal("stream", "put", "later", "--since", "2026-01-01T00:00Z").has("later all all programs 5 ")
    assert terminal("stream", "put", "none", "--since", "now").has("none all all programs 0 ")
    assert terminal("stream", "put", "audit", "--since", "2h").code == 1, "it is there"
    for wrong in ("yesterday", "2026-01-01", "2199-01-01T00:00Z"):
        refused = terminal("stream", "put", "wrong", "--since", wrong)
        assert refused.code == 2 and not refused.out


def test_what_makes_no_sense_is_refused_at_the_terminal(terminal: Terminal) -> None:
    refused = terminal("stream", "put", "audit", "--to", "ftp://example.org")
    assert refused.code == 2 and "https://" in refused.err
    assert terminal("stream", "put", "audit", "--events", "some").code == 2
    assert terminal("stream", "tail", "nobody").code == 1
