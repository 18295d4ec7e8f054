"""The exit codes of all commands: 0 done, 1 it could not be done, 2 wrong usage; the guide says the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cyclopts import App

from perdure import Engine, ProcessFailed
from perdure.cli import exit_code
from perdure.cli.app import whole_app
from perdure.errors import InvalidInput, KeyConflict, PayloadError, ProcessBroken, UnreadablePayload
from tests.cli import till
from tests.cli.conftest import at_work, on_copy
from tests.cli.purse import Purse
from tests.cli.terminal import Program, Terminal
from tests.house.page import rows
from tests.source import ROOT

NOWHERE = "sqlite:////no/such/folder/shop.db"
DONE: dict[str, tuple[str, ...]] = {
    "start": ("start", "tests.cli.till:approval", "B-1"),
    "signal": ("signal", "waits", "no"),
    "call": ("call", "C-1", "price", "anvil"),
    "schedule": ("schedule", "ls"),
    "ps": ("ps",),
    "show": ("show", "failed"),
    "explain": ("explain", "waits"),
    "health": ("health",),
    "history": ("history", "waits"),
    "tree": ("tree", "waits"),
    "values": ("values", "waits"),
    "workers": ("workers",),
    "trace": ("trace", "waits"),
    "board": ("board",),
    "failures": ("failures",),
    "operation": ("operation", "ls"),
    "check": ("check", "findings"),
    "rehearse": ("rehearse", "tests.cli.till", "tests.cli.purse"),
    "export": ("export",),
    "import": ("import", "/dev/null"),
    "retry": ("retry", "failed"),
    "hold": ("hold", "waits"),
    "resume": ("resume", "held"),
    "restart": ("restart", "waits"),
    "edit": ("edit", "waits", "--input", '["B-2"]', "--restart"),
    "fork": ("fork", "noted", "--at", "note"),
    "restart-from": ("restart-from", "noted", "--step", "note"),
    "set-result": ("set-result", "failed", "--step", "refuse", "--value", "null"),
    "skip": ("skip", "failed", "--step", "refuse"),
    "cancel": ("cancel", "waits"),
    "terminate": ("terminate", "waits"),
    "fail": ("fail", "waits"),
    "rm": ("rm", "failed"),
    "key": ("key", "release", "failed"),
    "repair": ("repair", "torn", "--method", "mended", "--value", "[3]"),
    "migrate": ("migrate",),
    "queue": ("queue", "ls"),
    "breaker": ("breaker", "ls"),
    "leader": ("leader", "ls"),
    "outage": ("outage", "ls"),
    "alert": ("alert", "list"),
    "search": ("search", "ls"),
    "stream": ("stream", "ls"),
    "retention": ("retention", "list"),
    "kind": ("kind", "ls"),
    "move": ("move", "waits", "--version", "2", "--force"),
    "set-priority": ("set-priority", "waits", "--priority", "1"),
    "set-deadline": ("set-deadline", "waits", "--deadline", "2h"),
    "recovery": ("recovery",),
    "clock": ("clock",),
    "top": ("top", "--once"),
    "completion": ("completion", "bash"),
    "policy": ("policy", "explain", "noted_approval.*.note", "tests.cli.till"),
}
"""A command line for each command that can be carried out on the database of these tests."""
IMPOSSIBLE: dict[str, tuple[str, ...]] = {
    **DONE,
    "start": ("start", "tests.cli.nowhere:approval"),
    "demo": ("demo", "--orders", "1"),
}
"""A command line for each command that cannot be carried out on a database that is not there."""
NO_DATABASE = {"completion", "policy"}
"""Commands that need none."""
JUDGES = {"health"}
"""Commands whose exit code is a judgment: tried in test_monitoring.py."""
SERVES = {"worker", "demo"}
"""Commands that run OS processes: what they end with is tried in test_worker.py and in the tests of the examples."""


def verbs() -> list[str]:
    """The names of all commands."""
    return [name for name in whole_app() if not name.startswith("-")]


@pytest.fixture(scope="module")
def filled_file(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with a process in each state that a command wants."""

    async def fill(engine: Engine) -> None:
        await engine.start(till.approval.options(key="waits"), "A-1")
        held = await engine.start(till.approval.options(key="held"), "A-2")
        noted = await engine.start(till.noted_approval.options(key="noted"), "A-3")
        while "signal yes" not in (await noted.status()).waiting:
            await asyncio.sleep(0.01)
        await held.hold()
        with pytest.raises(ProcessFailed):
            await (await engine.start(till.refusal.options(key="failed"), "no")).result(10)
        torn = await engine.start(Purse.sewn.options(key="torn"), 1)
        await torn.signal(Purse.tear)
        with pytest.raises(ProcessBroken):
            await torn.result(10)

    file = tmp_path_factory.mktemp("filled") / "perdure.db"
    at_work(on_copy(migrated_file, f"sqlite:///{file}").url, fill)
    return file


@pytest.fixture
def filled(filled_file: Path, sqlite_url: str) -> Terminal:
    """A terminal on a copy of that file."""
    return on_copy(filled_file, sqlite_url)


@pytest.mark.parametrize("verb", sorted(set(verbs()) - SERVES - JUDGES - {"call"}))
def test_every_command_ends_with_0_when_it_is_done(filled: Terminal, verb: str) -> None:
    said = filled.bare(*DONE[verb]) if verb in NO_DATABASE else filled(*DONE[verb])
    assert (said.code, said.err) == (exit_code.DONE, "")


def test_a_call_ends_with_0_when_it_is_answered(sqlite_terminal: Terminal, programs: list[Program]) -> None:
    programs.append(sqlite_terminal.program("worker", "tests.cli.till"))
    programs[0].pid_hosting()
    assert sqlite_terminal("start", "tests.cli.till:counter", "--key", "C-1").code == 0
    assert sqlite_terminal(*DONE["call"]).code == exit_code.DONE


@pytest.mark.parametrize("verb", sorted(set(verbs()) - {"worker"} - JUDGES - NO_DATABASE))
def test_every_command_that_cannot_be_done_ends_with_1(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://ann@127.0.0.1:1/shop" if verb == "demo" else NOWHERE
    said = Terminal(url)(*IMPOSSIBLE[verb])
    assert said.code == exit_code.FAILED
    assert said.err.startswith("perdure: ") and said.err.count("\n") == 1


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_command_that_is_used_wrongly_ends_with_2(verb: str) -> None:
    for words in ((verb, "--colour"), (verb, *["too"] * 9, "--many")):
        said = Terminal(NOWHERE).bare(*words)
        assert said.code == exit_code.USAGE, words
        assert said.err.startswith("perdure: ") and "--help" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("start", "tests.cli.till:sale", "A", "two"),
        ("start", "tests.cli.till:sale", "A", "--delay", "soon"),
        ("start", "tests.cli.till:sale", "A", "--attribute", "customer"),
        ("cancel", "waits", "--deadline", "soon"),
        ("history", "waits", "--run", "9"),
        ("tree", "waits", "--limit", "0"),
        ("queue", "limit", "bank", "--concurrency", "0"),
        ("schedule", "put", "nightly", "tests.cli.till:approval", "A", "--cron", "soon"),
        ("worker", "tests.cli.till", "--workers", "0"),
        ("worker", "tests.cli.till", "--lease", "1", "--beat", "0.9"),
        ("ps", "--url", "mysql://localhost/shop"),
        ("rehearse", "tests.cli.till", "--where", "colour = red"),
        ("rehearse", "tests.cli.till", "--file", "nowhere.jsonl"),
        ("export", "--redact", "colour"),
        ("import", "nowhere.jsonl"),
    ],
)
def test_a_value_that_does_not_fit_is_wrong_usage(filled: Terminal, words: tuple[str, ...]) -> None:
    said = filled.bare(*words) if "--url" in words else filled(*words)
    assert said.code == exit_code.USAGE
    assert said.err.count("\n") == 1


def test_waiting_for_a_process_that_fails_ends_with_1(sqlite_terminal: Terminal, programs: list[Program]) -> None:
    programs.append(sqlite_terminal.program("worker", "tests.cli.till"))
    programs[0].pid_hosting()
    said = sqlite_terminal("start", "tests.cli.till:refusal", "no bread", "--wait")
    assert said.code == exit_code.FAILED
    assert "no bread" in said.err


def test_a_start_that_waits_prints_a_model_as_it_is_stored(sqlite_terminal: Terminal, programs: list[Program]) -> None:
    programs.append(sqlite_terminal.program("worker", "tests.cli.slip"))
    programs[0].pid_hosting()
    said = sqlite_terminal("start", "tests.cli.slip:slip", "A-1", "--wait")
    assert (said.code, said.out.splitlines()[1:]) == (0, ['{"order":"A-1","day":"2026-07-01"}'])
    said = sqlite_terminal("start", "tests.cli.slip:slip", "A-2", "--wait", "--json")
    assert (said.code, said.json["result"]) == (0, {"order": "A-2", "day": "2026-07-01"})


def test_errors_of_the_command_line_are_wrong_usage_and_all_others_are_failures() -> None:
    assert exit_code.of(InvalidInput("")) == exit_code.of(PayloadError("")) == exit_code.USAGE
    assert exit_code.of(UnreadablePayload("")) == exit_code.of(KeyConflict("")) == exit_code.FAILED


def test_the_guide_lists_every_exit_code() -> None:
    page = Path(ROOT / "docs" / "guide" / "16-operating.md").read_text(encoding="utf-8")
    told = [int(row[0].strip("`")) for row in rows(page, "exit code")]
    codes = [value for name, value in vars(exit_code).items() if name.isupper() and isinstance(value, int)]
    assert told == sorted(set(codes) - {exit_code.CANNOT_START})


def test_every_command_has_its_exit_codes_tried() -> None:
    assert set(DONE) | SERVES == set(verbs())
    assert isinstance(whole_app()["queue"], App)
