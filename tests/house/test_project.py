"""The project stands on any machine: nothing of ours in its files, ranges in its needs, one door for CI."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pythons
from tests.house.tree import ROOT, tracked
from tests.lowest import lowest

TEXT = frozenset({".py", ".sql", ".md", ".toml", ".sh", ".txt", ".csv", ".json", ".yml", ".cfg", ""})
OURS = re.compile(r"(?<![\w.])/(work|root|Users)/|/home/\w+/|/\.pyenv/|https?://(files|registry|pypi|deb)\.")
PINNED = re.compile(r"==|@ |https?://")


def of_one_machine(text: str) -> Iterator[str]:
    """Lines that name a folder of somebody's machine or a package registry."""
    yield from (line.strip() for line in text.splitlines() if OURS.search(line))


def test_no_file_names_a_folder_of_somebodys_machine_or_a_registry() -> None:
    found = {}
    for path in tracked():
        if path.suffix in TEXT and path.name != "test_project.py" and path.stat().st_size < 2_000_000:
            lines = list(of_one_machine(path.read_text(encoding="utf-8", errors="replace")))
            if lines:
                found[path.relative_to(ROOT).as_posix()] = lines[:3]
    assert found == {}


def test_a_folder_of_somebodys_machine_is_found_where_it_is_planted() -> None:
    for wrong in ("cd /work/main", "python=/root/venv/bin/python", "--index-url https://pypi.example/simple"):
        assert list(of_one_machine(wrong)), wrong
    assert not list(of_one_machine("see src/perdure/runtime/work/x and sqlite:////abs/path.db"))


def test_what_we_need_is_named_by_range_and_never_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [*project["dependencies"], *(need for extra in project["optional-dependencies"].values() for need in extra)]
    assert [need for need in needs if PINNED.search(need.partition(";")[0])] == []
    assert sorted(re.split(r"\W", need)[0] for need in project["dependencies"]) == [
        "asyncpg",
        "cronsim",
        "msgspec",
        "tzdata",
    ]


def test_each_need_has_a_floor_that_can_be_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    floors = list(lowest(project))
    assert {"asyncpg", "msgspec", "pytest"} <= {floor.partition("==")[0] for floor in floors}
    for wrong in ("msgspec", "msgspec<1", "msgspec~=0.20"):
        with pytest.raises(ValueError, match="has no floor"):
            list(lowest({**project, "dependencies": [wrong]}))


def test_a_python_is_found_by_what_it_says_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "{}.{}".format(*sys.version_info)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pythons.found(ours) is None
    for name in (ours, "2.0"):
        (tmp_path / f"python{name}").symlink_to(sys.executable)
    assert pythons.found(ours) == f"python{ours}"
    assert pythons.found("2.0") is None


def test_there_is_no_lock_file() -> None:
    locks = re.compile(r"(^|[.-])lock(\.\w+)?$|^requirements.*\.txt$|^Pipfile")
    assert [path.name for path in tracked() if locks.search(path.name)] == []


def test_ci_runs_make_test_and_nothing_cleverer() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert script[0].endswith("bash")
    assert script[1:] == ["set -e", 'cd "$(dirname "$0")/.."', "make test"]


def test_make_test_begins_with_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test: check\b", makefile, re.MULTILINE)
    check = "".join(re.findall(r"^check[-a-z]*:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert "--jobs=2 check-types check-house\n" in check
    for tool in ("ruff format --check", "ruff check", "mypy", "lint-imports", "tests/house"):
        assert tool in check
