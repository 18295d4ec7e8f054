"""What an operator tells processes: start, signal, cancel, terminate, retry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import Engine, ProcessFailed
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal

SALE = "tests.cli.till:sale"


def test_start_answers_the_same_process_for_the_same_key_and_input(terminal: Terminal) -> None:
    first = terminal("start", SALE, "A-1", "2", "--key", "A-1")
    again = terminal("start", SALE, "A-1", "2", "--key", "A-1", "--json")
    assert first.has("started sale A-1 ")
    assert again.json["created"] is False
    assert again.json["id"] == first.out.split()[-1]


def test_start_refuses_the_same_key_for_another_input(terminal: Terminal) -> None:
    terminal("start", SALE, "A-1", "2", "--key", "A-1")
    said = terminal("start", SALE, "A-1", "3", "--key", "A-1")
    assert said.code == 1
    assert said.err.startswith("perdure: the key 'A-1' of kind 'sale' belongs to process ")


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["17", "3"], "'17' 3 None None"),
        (["{}"], "'{}' 1 None None"),
        (["A", "3", '{"name": "anvil", "cents": 5}'], "'A' 3 Item(name='anvil', cents=5) None"),
        (["A", "3", "null", "2026-05-28"], "'A' 3 None 2026-05-28"),
        (["--input", '["A", 4]'], "'A' 4 None None"),
        (["--input", '{"count": 4, "order": "A"}'], "'A' 4 None None"),
    ],
)
def test_start_reads_what_was_typed_as_the_workflow_annotates_it(
    sqlite_terminal: Terminal, working: Working, typed: list[str], read: str
) -> None:
    id = sqlite_terminal("start", SALE, *typed, "--json").json["id"]

    async def result(engine: Engine) -> object:
        return await engine.process(id).result(timeout=10)

    assert working(result) == read


@pytest.mark.parametrize(
    ("typed", "refusal"),
    [
        ([SALE, "A", "two"], "argument 'count' cannot be read as int"),
        ([SALE, "A", "1", "null", "null", "5"], "sale takes 4 arguments (order, count, item, day), but 5 were given"),
        ([SALE], "missing a required argument: 'order'"),
        ([SALE, "A", "--input", "[]"], "the arguments are given twice"),
        ([SALE, "--input", "nonsense"], "JSON is malformed"),
        (["tests.cli.till", "A"], "tests.cli.till defines 10 workflows; name one: tests.cli.till:sale"),
        (["tests.cli.till:sail", "A"], "Did you mean 'sale'?"),
        (["tests.cli.nowhere", "A"], "there is no module 'tests.cli.nowhere'"),
        ([SALE, "A", "--key", ""], "the key is empty"),
        ([SALE, "A", "--deadline", "soon"], "'soon' is not a duration, or is too long; write 90s, 15m, 2h or 7d"),
    ],
)
def test_start_refuses_what_does_not_fit_and_says_why(
    sqlite_terminal: Terminal, typed: list[str], refusal: str
) -> None:
    said = sqlite_terminal("start", *typed)
    assert said.code == (1 if "nowhere" in typed[0] or "sail" in typed[0] else 2)
    assert refusal in said.err
    assert said.err.count("\n") == 1


def test_start_takes_attributes_and_a_delay(terminal: Terminal) -> None:
    words = ("--attribute", "customer=Ann", "--attribute", "number=7", "--delay", "2h")
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1", *words).code == 0
    assert [row["key"] for row in terminal("ps", "--attribute", "customer=Ann", "--json").json] == ["A-1"]
    assert terminal("show", "A-1").has('attributes {"customer":"Ann","number":7}')
    assert terminal("ps").has("A-1", "it waits for the time of its start, in ")
    said = terminal("start", "tests.cli.till:approval", "A-2", "--delay", "2h", "--signal", "yes=go")
    assert said.code == 2 and "a signal starts the process at once" in said.err


@pytest.mark.parametrize(
    "words", [("--delay", "2h"), ("--deadline", "2h"), ("--attribute", "a=1"), ("--key", "k"), ("--wait",)]
)
def test_options_of_one_start_are_refused_beside_a_file_of_lines(
    sqlite_terminal: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    lines = tmp_path / "sales.jsonl"
    lines.write_text('{"input": ["A"]}\n')
    said = sqlite_terminal("start", SALE, "--from", str(lines), *words)
    assert (said.code, said.out) == (2, "") and "leave out arguments and other options" in said.err


def test_start_of_a_line_each_starts_each_line_once(sqlite_terminal: Terminal, tmp_path: Path) -> None:
    lines = tmp_path / "sales.jsonl"
    lines.write_text("".join(json.dumps({"key": f"L-{n}", "input": [f"L-{n}", n]}) + "\n" for n in range(1500)))
    assert sqlite_terminal("start", SALE, "--from", str(lines)).out == "started 1,500 processes of kind sale\n"
    assert sqlite_terminal("start", SALE, "--from", str(lines), "--json").json == {
        "kind": "sale",
        "created": 0,
        "existed": 1500,
    }
    assert len(sqlite_terminal("ps", "--json", "--limit", "2000").json) == 1500


@pytest.mark.parametrize("bad", ["nonsense", '{"key": "B"}', '{"input": ["A", "two"]}', '{"input": [], "sleutel": 1}'])
def test_a_bad_line_stops_and_is_named(sqlite_terminal: Terminal, tmp_path: Path, bad: str) -> None:
    lines = tmp_path / "sales.jsonl"
    lines.write_text(json.dumps({"key": "A", "input": ["A"]}) + "\n" + bad + "\n")
    said = sqlite_terminal("start", SALE, "--from", str(lines))
    assert said.code == 1
    assert said.err.startswith("perdure: line 2: ")
    assert "send the file again" in said.err


def test_a_line_that_is_not_utf_8_stops_and_is_named(
    sqlite_terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "sales.jsonl"
    lines.write_bytes(b'{"input": ["A"]}\n{"input": ["B\xe9"]}\n')
    told = "perdure: line 2: it is not UTF-8: character 14 is the byte 0xe9. The 0 before this batch were started; "
    said = sqlite_terminal("start", SALE, "--from", str(lines))
    assert said.code == 1 and said.err.startswith(told)
    with lines.open(encoding="latin-1") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        said = sqlite_terminal("start", SALE, "--from", "-")
    assert said.code == 1 and said.err.startswith(told)


def test_a_signal_records_who_sent_it_and_why(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    said = terminal("signal", "A-1", "yes", "gladly", "--key", "once", "--who", "Ann", "--why", "it is right")
    again = terminal("signal", "A-1", "yes", "gladly", "--key", "once")
    assert said.out == "approval A-1: sent\n"
    assert again.out == "approval A-1: had been sent before, with the same key\n"
    assert len(terminal("show", "A-1", "--json").json["unheard_messages"]) == 1


def test_a_signal_to_a_process_that_has_ended_is_no_success(terminal: Terminal, working: Working) -> None:
    async def sell(engine: Engine) -> None:
        await (await engine.start(till.sale.options(key="A-1"), "A-1")).result(10)

    working(sell)
    said = terminal("signal", "A-1", "yes")
    assert (said.code, said.out) == (1, "")
    assert "has ended, so nobody will read it" in said.err


def test_cancel_asks_and_terminate_ends_and_both_record_who_and_why(terminal: Terminal, working: Working) -> None:
    for key in ("A-1", "A-2"):
        terminal("start", "tests.cli.till:approval", key, "--key", key)
    assert terminal("cancel", "A-1", "--who", "Ann", "--why", "changed my mind").has("approval A-1: asked to cancel")
    assert terminal("terminate", "A-2", "--who", "Bob", "--why", "a test").has("approval A-2: terminated")

    async def settle(engine: Engine) -> None:
        for view in await engine.list():
            with pytest.raises(Exception, match="cancelled"):
                await engine.process(view.id).result(timeout=10)

    working(settle)
    assert terminal("history", "A-1").has("message received: cancel", "by Ann because: changed my mind")
    assert terminal("history", "A-2").has("terminated", "by Bob because: a test")


def test_retry_lets_a_failed_process_go_on_and_says_what_it_waits_for(terminal: Terminal, working: Working) -> None:
    async def fail(engine: Engine) -> None:
        with pytest.raises(ProcessFailed):
            await (await engine.start(till.refusal.options(key="R-1"), "no")).result(10)

    working(fail)
    said = terminal("retry", "R-1")
    assert said.out.startswith("refusal R-1: goes on in run 2; it is due, and no live worker hosts workflow 'refusal'")


def test_one_refused_command_does_not_stop_the_others(terminal: Terminal) -> None:
    for key in ("A-1", "A-2"):
        terminal("start", "tests.cli.till:approval", key, "--key", key)
    said = terminal("terminate", "A-1", "A-9", "A-2")
    assert said.code == 1
    assert said.out == "approval A-1: terminated\napproval A-2: terminated\n"
    assert said.err.startswith("perdure: A-9: no process has the id or key 'A-9'")
    said = terminal("terminate", "A-1", "A-2", "--json")
    assert [set(one) for one in said.json] == [{"process", "error"}] * 2


def test_a_command_that_does_not_fit_the_status_is_refused_in_one_line(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    said = terminal("retry", "A-1")
    assert said.code == 1
    assert said.err == "perdure: cannot retry a process that is running: it goes on by itself\n"
