"""A command of the prepared program cannot be told from one that was started by itself."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.prepared import prepared
from tests.docs.walkthrough import ROOT

SHOP = """
from perdure import workflow

@workflow
async def order(name: str) -> str:
    return name
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    """The line by which a shell runs it, in a folder with a module of its own."""
    (tmp_path / "shop.py").write_text(SHOP)
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with prepared(tmp_path, {**os.environ, "PYTHONPATH": path}) as line:
        yield line


def test_it_has_the_words_the_environment_the_folder_and_the_exit_code_of_each_command(
    program: str, tmp_path: Path
) -> None:
    for line in (
        "migrate",
        "start shop:order 'two words' --key A-1",
        "show A-1 --json | head -c 2",
        "history A-1",
        "show",
        "--help",
    ):
        url = {"PERDURE_URL": f"sqlite:///{tmp_path}/one.db", "COLUMNS": "60"}
        alone = f"{shlex.quote(sys.executable)} -m perdure"
        said = [
            subprocess.run(
                ["bash", "-o", "pipefail", "-c", f"{start} {line}"], cwd=tmp_path, env={**os.environ, **url, **path},
                capture_output=True, text=True, check=False,
            )
            for start, path in ((program, {}), (alone, {"PYTHONPATH": str(ROOT / "src")}))
        ]  # fmt: skip
        prepared, plain = said
        assert prepared.returncode == plain.returncode
        if not line.startswith(("migrate", "start")):  # which say the second time that all is there already
            assert (prepared.stdout, prepared.stderr) == (plain.stdout, plain.stderr)
    assert (tmp_path / "one.db").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_ends_with_whoever_gave_it(program: str, how: signal.Signals, tmp_path: Path) -> None:
    given = subprocess.Popen(
        ["sh", "-c", f"exec {program} worker shop"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PERDURE_URL": f"sqlite:///{tmp_path}/one.db"}, text=True,
    )  # fmt: skip
    assert given.stdout is not None
    said = next(line for line in given.stdout if " hosts " in line)
    worker = int(said.partition("worker ")[2].split()[0])
    assert worker != given.pid
    given.send_signal(how)
    given.stdout.read()  # ends when the worker, which has it open too, is gone
    assert given.wait() == (0 if how is signal.SIGINT else -how)
    given.stdout.close()
