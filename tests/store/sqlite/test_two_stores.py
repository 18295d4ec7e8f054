"""Two stores of one program on one file: neither may free the locks of the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine

LOOK = """
import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM process").fetchone())
"""


@workflow
async def waiting() -> str:
    return await receive("end", str)


def seen_from_outside(path: Path) -> int:
    """What another OS process finds; as it closes the file it takes the log of writes away if nobody has it open."""
    found = subprocess.run([sys.executable, "-c", LOOK, str(path)], capture_output=True, text=True, check=True)
    return int(found.stdout)


async def test_law_accepted_is_kept_when_a_second_store_is_opened_and_others_look_at_the_file(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    async with Engine(f"sqlite:///{path}", workflows=[waiting], migrate=True) as one:
        await one.start(waiting)
        async with Engine(f"sqlite:///{path}", workflows=[waiting], migrate=True):
            assert seen_from_outside(path) == 1
            await one.start(waiting)
            assert seen_from_outside(path) == 2
