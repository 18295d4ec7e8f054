"""What the program says when it cannot do what was asked: one line, what to do, and the right exit code."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perdure.cli import text
from perdure.cli.app import run
from tests.cli.terminal import Terminal
from tests.source import PYTHONPATH, SOURCE


@pytest.mark.parametrize("words", [["pss"], ["ps", "--colour"], ["show"], ["ps", "--limit", "many"], ["start"]])
def test_a_command_line_that_is_not_understood_ends_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.err.startswith("perdure: ") and said.err.count("\n") == 1
    assert "--help" in said.err


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("mysql://localhost/shop", "use sqlite:///file.db or postgresql://user@host/database"),
        ("sqlite:///", "write sqlite:///"),
        ("postgresql://localhost", "names no database"),
        ("shop.db", "use sqlite:///file.db"),
    ],
)
def test_a_wrong_url_is_refused_with_the_right_form(url: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps", "--url", url]) == 2
    said = capsys.readouterr().err
    assert advice in said and said.count("\n") == 1


@pytest.mark.parametrize("variable", ["PERDURE_URL", "PERDURE_LOG_LEVEL", "PERDURE_LOG_FORMAT"])
def test_a_variable_that_is_set_to_nothing_counts_as_not_set(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "")
    assert run(["worker", "shop", "--workers", "0"]) == 2
    assert "--workers 0 would do nothing" in capsys.readouterr().err


def test_a_database_that_is_not_there_is_said_and_not_created(tmp_path: Path) -> None:
    said = Terminal(f"sqlite:///{tmp_path}/shop.db")("ps")
    assert said.code == 1 and "there is no database" in said.err
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_said_in_one_line_without_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["ps", "--url", "postgresql://ann:secret@127.0.0.1:1/shop"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "127.0.0.1" in said
    assert "secret" not in said


def test_a_file_that_is_no_database_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("Dear Ann,\n" * 500)
    assert run(["ps", "--url", f"sqlite:///{tmp_path}/letter.txt"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_database_of_a_newer_version_that_is_not_for_this_one_is_refused(
    sqlite_terminal: Terminal, tmp_path: Path
) -> None:
    sqlite_terminal("migrate")
    _make_newer(tmp_path / "perdure.db", oldest=999)
    said = sqlite_terminal("ps")
    assert said.code == 1
    assert "version 999" in said.err and "upgrade Perdure" in said.err and said.err.count("\n") == 1


def test_a_database_of_a_newer_version_that_this_one_may_use_is_used_as_it_is(
    sqlite_terminal: Terminal, tmp_path: Path
) -> None:
    sqlite_terminal("migrate")
    _make_newer(tmp_path / "perdure.db", oldest=1)
    for command in ("ps", "migrate"):
        said = sqlite_terminal(command)
        assert (said.code, said.err) == (0, "")
    with closing(sqlite3.connect(tmp_path / "perdure.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (999,)


def _make_newer(file: Path, *, oldest: int) -> None:
    """Have a Perdure of schema 999 migrate it, and say that nobody who knows less than ``oldest`` may use it."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE schema_reader SET oldest = ?", (oldest,))
        database.execute("PRAGMA user_version = 999")


def test_without_its_libraries_the_program_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ModuleNotFoundError('no rich', name='rich')")
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "ps"],
        env={"PYTHONPATH": f"{tmp_path}:{SOURCE}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "perdure: the command line needs rich: run pip install 'perdure[cli]'\n"


def test_a_limit_in_the_environment_that_is_no_number_is_refused_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "ps"],
        env={"PYTHONPATH": SOURCE, "PERDURE_INBOX_MESSAGES": "abc", "PERDURE_URL": f"sqlite:///{tmp_path}/shop.db"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "perdure: PERDURE_INBOX_MESSAGES is 'abc'. Give a whole number above 0, or unset it.\n"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_the_encoding_of_the_output_does_not_have_is_told_by_its_number(
    sqlite_terminal: Terminal, encoding: str
) -> None:
    key = "é€\U0001f600"

    def said(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", *words], capture_output=True, check=True,
            env={"PYTHONPATH": PYTHONPATH, "PERDURE_URL": sqlite_terminal.url, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.stderr == b""
        return done.stdout.decode(encoding)

    assert "\\u20ac\\U0001f600 " in said("start", "tests.cli.till:approval", "A-1", "--key", key)
    assert json.loads(said("start", "tests.cli.till:approval", "A-1", "--key", key, "--json"))["key"] == key
    assert "\\u20ac\\U0001f600 " in said("ps")
    [row] = json.loads(said("ps", "--json"))
    assert row["key"] == key


def test_importing_perdure_imports_neither_the_command_line_nor_a_database() -> None:
    heavy = "cyclopts rich asyncpg sqlite3 uvloop pydantic"
    code = f"import sys, perdure; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_worker_imports_nothing_that_only_a_terminal_needs() -> None:
    code = (
        "import sys, perdure.cli.worker_process; print([name for name in ('cyclopts', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.4, "9.4 s"), (59.7, "1 min"), (185, "3 min 5 s"), (7200, "2 h"), (187_200, "2 d 4 h")],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert text.span(seconds) == words


@pytest.mark.parametrize(
    ("typed", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1.5 d", 129_600)]
)
def test_a_typed_duration_is_read_in_seconds(typed: str, seconds: float) -> None:
    assert text.seconds_of(typed) == seconds
