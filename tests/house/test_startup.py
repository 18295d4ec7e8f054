"""What a start does not import: each program pays only for what it uses. Names of modules are held, not times.

``python -m bench.startup`` prints what a start costs.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import perdure
from tests.house.tree import ROOT

RARE = (
    "asyncpg", "sqlite3", "cyclopts", "rich", "cronsim", "tomllib", "tempfile", "hmac", "ctypes", "email", "http",
    "perdure.authoring.check", "perdure.authoring.flow", "perdure.authoring.operation", "perdure.authoring.schedule",
    "perdure.authoring.webhook", "perdure.client.alerting", "perdure.client.archive", "perdure.client.blocking",
    "perdure.client.checks",
    "perdure.client.explaining.explanation", "perdure.client.finding", "perdure.client.health",
    "perdure.client.leaders", "perdure.client.operations", "perdure.client.queues", "perdure.client.recovery",
    "perdure.client.schedules",
    "perdure.client.streams", "perdure.monitoring.metrics", "perdure.portal", "perdure.rehearsal",
    "perdure.runtime.worker", "perdure.store.postgres", "perdure.store.sealed", "perdure.store.sqlite",
)  # fmt: skip
"""What a program that opens no engine, or none that works, has no use for, or only on some paths."""
LIBRARY = (
    "calendar", "cronsim", "ctypes", "difflib", "hmac", "importlib.resources", "tempfile", "zipfile", "zoneinfo",
    "perdure.authoring.check.machine", "perdure.authoring.machine", "perdure.authoring.operation",
    "perdure.authoring.schedule", "perdure.authoring.webhook", "perdure.client.debounce", "perdure.client.schedules",
    "perdure.client.status_changes", "perdure.client.trace", "perdure.client.view", "perdure.kernel.alerting",
    "perdure.kernel.archive", "perdure.kernel.fork", "perdure.kernel.retention", "perdure.streaming",
)  # fmt: skip
"""What a worker has no use for before it has a process of the library's own in hand, a machine, or a mistake."""
WORKING = """
import asyncio, perdure
@perdure.step
async def one(): return 1
@perdure.workflow
async def plain(): return await one()
async def main():
    async with perdure.Engine('sqlite:///:memory:', work=True) as engine:
        assert await (await engine.start(plain)).result() == 1
asyncio.run(main())
"""
STARTS = {
    "import perdure": (*RARE, "perdure.engine", "perdure.client", "perdure.store", "perdure.runtime"),
    "from perdure import Engine": RARE,
    "from perdure import Engine; Engine('sqlite:///:memory:')": tuple({*RARE} - {"sqlite3", "perdure.store.sqlite"}),
    "from perdure.cli.app import app_for; app_for(['ps'])": tuple(
        {*RARE} - {"cyclopts", "rich", "perdure.client.finding", "email", "http"}
    ),
    WORKING: LIBRARY,
}


def modules_after(code: str) -> list[str]:
    """All modules that a new program has imported once it has run this code."""
    told = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("code", STARTS)
def test_a_start_imports_nothing_that_is_rarely_needed(code: str) -> None:
    found = modules_after(code)
    rare = STARTS[code]
    assert "perdure.kernel.process" in found
    assert [name for name in found if name in rare or name.startswith(tuple(f"{one}." for one in rare))] == []


def test_what_is_held_to_be_rare_exists() -> None:
    told = "\n".join(f"import {name}" for name in (*RARE, *LIBRARY))
    assert {*RARE, *LIBRARY} <= set(modules_after(told))


def test_every_name_that_is_imported_late_is_public_and_found() -> None:
    assert set(perdure._LATE) <= set(perdure.__all__)
    for name in perdure.__all__:
        assert getattr(perdure, name) is not None, name
    assert set(perdure.__all__) <= set(dir(perdure))


def test_a_type_checker_sees_the_late_names_where_they_are_found() -> None:
    text = (ROOT / "src/perdure/__init__.py").read_text().partition("if TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    seen: dict[str, object] = {}
    exec("\n".join(line.strip() for line in text.splitlines()), seen)  # noqa: S102 (the imports of the front door)
    assert {name for name in seen if name != "__builtins__"} == set(perdure._LATE)
    assert [name for name in perdure._LATE if seen[name] is not getattr(perdure, name)] == []


def test_a_name_that_is_not_there_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'perdure' has no attribute 'absent'"):
        getattr(perdure, "absent")  # noqa: B009 (a type checker would refuse `perdure.absent`)
    with pytest.raises(ImportError, match="cannot import name 'absent'"):
        exec("from perdure import absent")  # noqa: S102
