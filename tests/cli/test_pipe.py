"""A reader that ends before the program, as in ``perdure ps | grep -q``: that is no failure of the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from perdure import Engine
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal
from tests.source import PYTHONPATH

MANY = 900
"""More rows than a pipe has room for."""


async def many(engine: Engine) -> None:
    await engine.start_many(till.approval, [("A" * 200,)] * MANY, keys=[f"A-{n}" for n in range(MANY)])


def read_by_one_who_ends(terminal: Terminal, words: Sequence[str], lines: int) -> tuple[int, bytes]:
    """The exit code and the error output of the program if its output is read so far only."""
    with subprocess.Popen(
        [sys.executable, "-m", "perdure", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PERDURE_URL": terminal.url},
    ) as program:  # fmt: skip
        assert program.stdout is not None and program.stderr is not None
        for _ in range(lines):
            program.stdout.readline()
        program.stdout.close()
        said = program.stderr.read()
    return program.returncode, said


@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize("words", [["ps"], ["ps", "--json"]])
def test_a_page_whose_reader_has_ended_ends_with_0(
    sqlite_terminal: Terminal, working: Working, words: list[str], lines: int
) -> None:
    working(many)
    assert read_by_one_who_ends(sqlite_terminal, [*words, "--limit", str(MANY)], lines) == (0, b"")


@pytest.mark.parametrize("words", [["--help"], [], ["ps", "--help"], ["operation", "--help"], ["--version"]])
def test_help_whose_reader_has_ended_ends_with_0(sqlite_terminal: Terminal, words: list[str]) -> None:
    assert read_by_one_who_ends(sqlite_terminal, words, 0) == (0, b"")
