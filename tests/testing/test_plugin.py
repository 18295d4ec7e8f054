"""The plugin for pytest: one fixture, for every way to run async tests, which costs nothing until it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from perdure.kernel import archive
from perdure.kernel.process import Process
from tests.source import PYTHONPATH, ROOT

TESTS = """
import asyncio
import sys

import pytest


def test_unused_it_imports_nothing():
    assert "perdure" not in sys.modules


async def the_reminder(perdure_engine, **settings):
    from tests.testing.bakery import delivery

    async with perdure_engine(**settings) as engine:
        return await (await engine.start(delivery, "A-1")).result(timeout=10)


def test_in_a_loop_of_its_own(perdure_engine):
    assert asyncio.run(the_reminder(perdure_engine)) == "dear A-1"


@pytest.mark.asyncio
async def test_with_pytest_asyncio(perdure_engine):
    assert await the_reminder(perdure_engine) == "dear A-1"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_with_anyio(perdure_engine):
    from tests.testing.bakery import remind

    assert await the_reminder(perdure_engine, steps={remind: lambda order: "a fake"}) == "a fake"


def test_two_engines_have_two_databases(perdure_engine):
    async def both():
        async with perdure_engine() as one, perdure_engine() as other:
            return one.store.url, other.store.url

    one, other = asyncio.run(both())
    assert one != other
"""

HISTORIES = """
import pytest


@pytest.mark.perdure_histories("histories")
def test_a_history_fits(perdure_history):
    perdure_history.rehearse("tests.rehearsal.code").check()
"""


def run(folder: Path) -> str:
    """What pytest says of the tests in a folder."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "pytest_perdure", "-p", "no:cacheprovider", "-W", "error"],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        cwd=folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_each_exported_process_is_a_test_of_its_own(tmp_path: Path) -> None:
    rows = [Process(bytes([n]) * 16, kind, f"A-{n}", b'["A"]', code="1") for n, kind in ((1, "parcel"), (2, "gone"))]
    (tmp_path / "histories").mkdir()
    lines = [archive.written(archive.record_of(row, [], [])) for row in rows]
    (tmp_path / "histories" / "all.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "test_histories.py").write_text(HISTORIES, encoding="utf-8")
    said = run(tmp_path)
    assert "test_a_history_fits[all.jsonl:parcel:A-1] PASSED" in said, said
    assert "test_a_history_fits[all.jsonl:gone:A-2] FAILED" in said
    assert "the code at hand has no version '1' of gone" in said


def test_histories_that_are_not_there_or_not_named_are_errors_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(HISTORIES, encoding="utf-8")
    (tmp_path / "test_unnamed.py").write_text(HISTORIES.replace("@pytest.mark", "# "), encoding="utf-8")
    said = run(tmp_path)
    assert "no file with processes" in said, said
    assert "mark it with @pytest.mark.perdure_histories(path)" in said


def test_the_fixture_works_with_every_runner_of_async_tests(tmp_path: Path) -> None:
    (tmp_path / "test_bakery.py").write_text(TESTS, encoding="utf-8")
    said = run(tmp_path)
    assert "5 passed" in said, said


def test_pytest_finds_the_plugin_by_itself_where_perdure_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_perdure": "pytest_perdure"}
    assert "src/pytest_perdure.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
