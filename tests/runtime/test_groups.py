"""Groups of verbs are imported when they are used: workflow code is refused before that, and told why."""

from __future__ import annotations

import subprocess
import sys

from tests.house.tree import ROOT

PROGRAM = """
import asyncio
from perdure import Engine, workflow

@workflow
async def uses(group: str) -> str:
    try:
        getattr(engine, group)
    except Exception as error:
        return type(error).__name__
    return "nothing was said"

async def main():
    global engine
    async with Engine("sqlite:///:memory:", work=True) as engine:
        for group in ("queues", "operations", "leaders", "streams"):
            print(group, await (await engine.start(uses, group)).result())

asyncio.run(main())
"""


def test_workflow_code_that_is_the_first_to_use_a_group_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.splitlines() == [
        f"{group} WorkflowMisuse" for group in ("queues", "operations", "leaders", "streams")
    ]
