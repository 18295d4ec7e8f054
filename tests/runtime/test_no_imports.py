"""While processes run nothing is imported: a file that the system refuses then would be a process's trouble."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


async def test_nothing_is_imported_while_processes_of_every_kind_run(store_url: str) -> None:
    command = (sys.executable, "-m", "tests.runtime.no_imports", store_url)
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    told, _ = await child.communicate()
    assert child.returncode == 0
    assert told.decode().split() == ["imported"]
