"""The cells of a worker that is killed: neither they nor what their steps have started outlive it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.harness import LIMIT
from tests.kill.victim import ENVIRONMENT as IMPORTED
from tests.kill.victim import victim

ENVIRONMENT = {**os.environ, **IMPORTED}


@pytest.mark.kill
async def test_a_cell_and_what_it_started_die_with_their_killed_worker_even_while_busy_in_c(
    sqlite_url: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    worker = await victim("tests.kill.hard_step", sqlite_url, str(fifo))
    try:
        with fifo.open("rb") as held:
            cell = int(held.readline())
            assert cell != worker.pid
            worker.kill()
            await asyncio.wait_for(worker.wait(), LIMIT)
            assert held.read() == b"", "read to the end: nobody holds it any more"
    finally:
        await worker.close()


PROGRAM = """
import asyncio
from perdure import Engine, Retry, step, workflow

@step(hard=True, retry=Retry.NONE)
def one() -> int:
    return 1

@workflow
async def flow() -> int:
    return await one()

async def main() -> None:
    async with Engine("sqlite:///perdure.db", work=True) as engine:
        handle = await engine.start(flow)
        print("result", await handle.result(30))

{guard}asyncio.run(main())
"""


@pytest.mark.parametrize("guard", ['if __name__ == "__main__": ', ""])
def test_a_cell_imports_the_program_and_is_not_made_to_run_it_again(tmp_path: Path, guard: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(guard=guard))
    done = subprocess.run(
        [sys.executable, "program.py"], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.stdout, done.returncode) == ("result 1\n", 0)
    assert ('Put what it does behind `if __name__ == "__main__":`' in done.stderr) == (not guard)
    assert bool(done.stderr) == (not guard)


def test_a_hard_step_of_a_file_that_was_named_by_its_path_is_found_by_the_cells_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "program.py").write_text(PROGRAM.format(guard='if __name__ == "__main__": '))
    url = f"sqlite:///{tmp_path}/perdure.db"
    perdure = [sys.executable, "-m", "perdure"]
    settings = {"env": ENVIRONMENT | {"PERDURE_URL": url}, "cwd": tmp_path}
    subprocess.run([*perdure, "migrate"], check=True, capture_output=True, **settings)
    worker = subprocess.Popen(
        [*perdure, "worker", "deep/program.py", "--cells", "1"], stdout=subprocess.DEVNULL, **settings
    )
    try:
        done = subprocess.run(
            [*perdure, "start", "deep/program.py:flow", "--wait"],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            **settings,
        )
        assert done.stdout.splitlines()[-1:] == ["1"], done.stdout + done.stderr
    finally:
        worker.terminate()
        worker.wait(LIMIT)
