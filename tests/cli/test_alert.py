"""Rules that alert at the terminal: added, listed, silenced, tried and removed, on both stores."""

from __future__ import annotations

from tests.cli.terminal import Terminal


def test_a_rule_is_added_listed_silenced_tried_and_removed(terminal: Terminal) -> None:
    assert terminal("alert", "list").has("there is no alert rule")
    added = terminal(
        "alert", "add", "night", "failures", "--to", "https://example.org/s3cret", "--to", "mailto:ops@example.org",
        "--where", "kind = order", "--at-least", "20", "--within", "10m", "--resolved",
        "--quiet", "22:00-06:00 Europe/Zurich", "--who", "ana",
    )  # fmt: skip
    assert added.code == 0 and added.has("rule when to silent looked state")
    assert added.has("night failures, 20 or more, kind = order https://example.org, mailto:ops@example.org")
    assert added.has("22:00-06:00 Europe/Zurich nothing") and "s3cret" not in added.out
    [seen] = terminal("alert", "ls", "--json").json
    assert (seen["within"], seen["per_hour"], seen["who"], seen["origin"], seen["resolved"]) == (
        600,
        12,
        "ana",
        "cli",
        True,
    )
    assert terminal("alert", "silence", "night", "--for", "2h").has("night", "for 2 h, 22:00-06:00")
    assert terminal("alert", "silence", "night", "--daily", "12:00-13:00").has("night", "12:00-13:00 UTC")
    assert not terminal("alert", "silence", "night", "--end").has("12:00-13:00")
    assert terminal("alert", "remove", "night").has("removed alert rule night")
    assert terminal("alert", "list").has("there is no alert rule")


def test_a_trial_says_what_holds_now_and_ends_with_1_if_a_place_cannot_be_reached(terminal: Terminal) -> None:
    terminal("outage", "begin", "order", "--why", "the bank is down")
    terminal("alert", "add", "outages", "outage")
    tried = terminal("alert", "test", "outages")
    assert tried.code == 0 and tried.has("log taken") and tried.has("now order is held as an outage")
    terminal("alert", "add", "outages", "outage", "--to", "http://127.0.0.1:1/hook")
    refused = terminal("alert", "test", "outages", "--json")
    assert refused.code == 1
    [[place, error]] = refused.json["sent"]
    assert (place, error) == ("http://127.0.0.1:1", "http://127.0.0.1:1 cannot be reached: ConnectionRefusedError")


def test_what_makes_no_sense_is_refused_at_the_terminal(terminal: Terminal) -> None:
    for words, said in (
        (("add", "night", "brokn"), "brok"),
        (("add", "night", "broken", "--to", "ftp://example.org"), "mailto:"),
        (("add", "night", "broken", "--every", "soon"), "duration"),
        (("add", "night", "broken", "--where", "kin = order"), "kin"),
        (("silence", "night"), "--end"),
        (("silence", "night", "--until", "tomorrow"), "2026-"),
        (("silence", "night", "--for", "1h"), "perdure alert add"),
        (("test", "night"), "no alert rule"),
        (("remove", "night"), "no alert rule"),
    ):
        refused = terminal("alert", *words)
        assert refused.code == 2 and said in refused.err, words
