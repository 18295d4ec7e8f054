"""What fits: in a terminal of 80 columns no line is longer and no id is divided; a pipe gets one line for each row."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import termios

import pytest
from rich.cells import cell_len
from rich.console import Console

from perdure import Engine, Schedule
from perdure.cli.app import run, whole_app
from perdure.cli.output import harmless
from perdure.cli.plain_output import fitted
from perdure.cli.rows import Rows
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Said, Terminal
from tests.cli.test_hostile import SHORT, check, fill
from tests.prepared import prepared
from tests.source import SOURCE

COLUMNS = 80
LONG = "a-key-that-somebody-has-made-of-many-words-because-keys-may-be-long"
SCHEDULE = f"nightly-{LONG}"


class Screen(io.StringIO):
    """An output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_screen(terminal: Terminal, *words: str) -> Said:
    """Run a command line as in a terminal of 80 columns."""
    return terminal.bare(*words, "--url", terminal.url, stream=Screen)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


def widest(said: Said) -> int:
    """The width of the longest line."""
    return max(cell_len(line) for line in (said.out + said.err).splitlines())


@pytest.fixture
def ids(terminal: Terminal, working: Working) -> list[str]:
    """The ids of a process with a long key and one without a key, both of which wait."""

    async def start(engine: Engine) -> list[str]:
        await engine.schedules.put(SCHEDULE, Schedule("@daily", zone="Europe/Berlin"), till.approval, "A-3")
        keyed = await engine.start(till.approval.options(key=LONG), "an order with a long description " * 5)
        return [keyed.id, (await engine.start(till.approval, "A-2")).id, (await engine.start(till.faltering)).id]

    return working(start)


@pytest.mark.parametrize(
    "words",
    [("ps",), ("ps", "--wide"), ("show", LONG), ("history", LONG), ("tree", LONG), ("queue", "ls"), ("clock",),
     ("schedule", "ls"), ("schedule", "show", SCHEDULE), ("schedule", "trigger", SCHEDULE, "--timeout", "10ms"),
     ("recovery", "pause", "--why", "the release kills its workers, and a person must look at them " * 2),
     ("signal", LONG, "yes", "x" * 10), ("show", "nothing-" * 20), ("pss",)],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_output_fits_a_terminal_of_80_columns(terminal: Terminal, ids: list[str], words: tuple[str, ...]) -> None:
    said = on_screen(terminal, *words)
    longest_word = max(len(word) for word in (said.out + said.err).split())
    assert widest(said) <= max(COLUMNS, longest_word + 2), said


def test_ids_stay_whole_and_a_row_goes_on_in_the_next_line(terminal: Terminal, ids: list[str]) -> None:
    said = on_screen(terminal, "ps", "--wide")
    assert widest(said) <= COLUMNS
    for id in ids:
        assert id in said.out
    assert LONG in said.out
    heading, further = said.out.splitlines()[:2]
    assert heading.split() == ["id"] and further.startswith("    key")
    assert on_screen(terminal, "show", ids[0]).has(f"id {ids[0]}")


def test_a_row_leaves_no_empty_line_where_it_has_nothing_to_say() -> None:
    table = Rows("process", "what it says")
    table.add("x" * 60, "")
    table.add("y", "z" * 30)
    console = Console(width=COLUMNS, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(table)
    lines = [line.strip() for line in captured.get().splitlines()]
    assert lines == ["process", "what it says", "x" * 60, "y", "z" * 30]


def test_what_has_no_width_is_shown_too_and_what_divides_lines_elsewhere_divides_none_here() -> None:
    table = Rows("process", "key", "what it says")
    table.add("x\x1ey", "\x80", "a\u2028b")
    console = Console(width=COLUMNS, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(harmless(table))
    assert [line.split() for line in captured.get().splitlines()] == [
        ["process", "key", "what", "it", "says"],
        ["x\\x1ey", "\\x80", "a\\u2028b"],
    ]


def test_short_rows_stay_in_one_line_each(terminal: Terminal) -> None:
    assert terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1").code == 0
    assert on_screen(terminal, "queue", "block", "bank").out.splitlines()[0].split() == [
        "queue", "waiting", "running", "oldest", "workers", "limits", "blocked",
    ]  # fmt: skip


def test_a_pipe_gets_one_line_for_each_row(terminal: Terminal, ids: list[str]) -> None:
    listed = terminal("ps", "--wide").out.splitlines()
    assert listed[0].split() == ["id", "key", "kind", "status", "run", "events", "changed", "next"]
    assert sum(any(id in line and "running" in line for id in ids) for line in listed) == len(ids)


def test_nothing_that_is_stored_steers_a_narrow_terminal(sqlite_terminal: Terminal) -> None:
    ids = fill(sqlite_terminal.url, SHORT[::20])
    for words in (["ps", "--limit", "1000"], ["ps", "--wide"], ["queue", "ls"], *(["show", id] for id in ids[:5])):
        check(on_screen(sqlite_terminal, *words))


def test_sentences_are_broken_between_words_and_nothing_is_left_out() -> None:
    text = "`perdure restart 019ac0de-0000-7000-8000-000000000000` starts a new run of it, which keeps nothing"
    lines = fitted(text, 60).split("\n")
    assert len(lines) == 2 and " ".join(line.strip() for line in lines) == text
    assert fitted(text, None) == text


def test_a_real_terminal_gets_lines_of_its_width(sqlite_terminal: Terminal) -> None:
    assert sqlite_terminal("start", "tests.cli.till:approval", "A-1").code == 0
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run(
        [*prepared().command, "-m", "perdure", "ps", "--url", sqlite_terminal.url], check=True,
        stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    os.close(theirs)
    lines = os.read(ours, 64 * 1024).decode().splitlines()
    os.close(ours)
    assert any(line.startswith("    ") and "it is due" in line for line in lines)
    assert max(map(cell_len, lines)) <= COLUMNS


@pytest.mark.parametrize("verb", [verb for verb in whole_app() if not verb.startswith("-")])
def test_the_help_of_every_command_fits_too(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= COLUMNS


def test_help_lists_the_commands_in_groups_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert titles == ["Starting", "Looking", "Repairing", "Running", "Database", "Program"]
    listed = [line.strip("│ ").split()[0] for line in lines if line.startswith("│")]
    assert sorted(listed) == sorted({*whole_app()} - {"-h"}), (
        "a line that does not begin with a command is a second line of one"
    )
    assert max(map(cell_len, lines)) <= COLUMNS
