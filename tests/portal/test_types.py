"""What mypy sees of the blocking engine: the client's own signatures, not Any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
from typing import Any, assert_type

from perdure import BlockingEngine, Engine
from perdure.portal import BlockingHandle
from perdure.view import ProcessView


async def buy(engine: Engine, cents: int) -> list[str]:
    return []


def use(engine: BlockingEngine, handle: BlockingHandle[int]) -> None:
    assert_type(engine.start("order", 7, key="A-1"), BlockingHandle[Any])
    assert_type(engine.start_many("order", [(7,)]), list[BlockingHandle[Any]])
    assert_type(engine.status(handle.id), ProcessView)
    assert_type(handle.status(), ProcessView)
    assert_type(handle.result(1.0), int)
    assert_type(handle.call("quote", 7), Any)
    assert_type(engine.metrics(), dict[str, float])
    assert_type(engine.run(buy, 7), list[str])
    with BlockingEngine("sqlite:///shop.db", work=True) as opened:
        assert_type(opened, BlockingEngine)
    engine.start("order", key=7)  # type: ignore[arg-type]
    engine.status()  # type: ignore[call-arg]
    engine.run(buy, "7")  # type: ignore[arg-type]
    handle.cancel(whom="Ann")  # type: ignore[call-arg]
    BlockingEngine("sqlite:///shop.db", wrk=True)  # type: ignore[call-arg]
"""


def test_mypy_sees_the_signatures_of_the_client(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    # In an OS process of its own: mypy leaves a raised threshold of the collector and a large heap behind.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.stderr == ""
    assert [line for line in checked.stdout.splitlines() if "program.py:" in line] == []
    assert "Found" in checked.stdout or "Success" in checked.stdout
