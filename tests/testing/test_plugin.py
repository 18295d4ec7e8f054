"""The plugin for pytest: one fixture, for every way to run async tests, which costs nothing until it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def test_the_fixture_works_with_every_runner_of_async_tests(tmp_path: Path) -> None:
    (tmp_path / "test_bakery.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_perdure", "-p", "no:cacheprovider", "-W", "error"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_plugin_by_itself_where_perdure_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"pytest_perdure": "pytest_perdure"}
    assert "src/pytest_perdure.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
