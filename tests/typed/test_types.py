"""What mypy must find in ``program.py``, which `make check` asks, and ``make types`` pyright too."""

from __future__ import annotations

import tomllib
from pathlib import Path

SETTINGS = Path(__file__).parents[2] / "pyproject.toml"


def test_of_the_program_mypy_overlooks_nothing_of_what_it_overlooks_in_tests() -> None:
    mypy = tomllib.loads(SETTINGS.read_text())["tool"]["mypy"]
    assert mypy["strict"] is True and "tests" in mypy["files"]
    sections = {module: section for section in mypy["overrides"] for module in section["module"]}
    tests, program = sections["tests.*"], sections["tests.typed.program"]
    assert program["enable_error_code"] == tests["disable_error_code"]
    loose = {name for name, value in tests.items() if isinstance(value, bool)}
    assert loose and all(program[name] is not tests[name] for name in loose)
