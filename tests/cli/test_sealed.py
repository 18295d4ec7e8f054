"""The command line on sealed processes: it finds the codecs where the workers find them, and says so if it cannot."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Engine, limits
from perdure.errors import InvalidInput
from tests.cli import till
from tests.cli.terminal import Program, Terminal
from tests.source import SOURCE

SEAL = """
import perdure

codecs = [perdure.codec.Zstd(), perdure.codec.AesGcm({"one": bytes(range(32))})]
offload = perdure.offload.Folder(__file__ + ".blobs", above=2000)
"""


@pytest.fixture
def seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says how payloads are sealed, named in the environment."""
    file = tmp_path / "seal.py"
    file.write_text(SEAL)
    monkeypatch.setenv("PERDURE_SEAL", str(file))
    return file


def test_start_work_show_and_history_open_what_the_environment_says(
    terminal: Terminal, seal: Path, programs: list[Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = terminal.program("worker", till.__name__)
    programs.append(worker)
    worker.pid_hosting()
    secret = "4000-1234"
    said = terminal("start", f"{till.__name__}:sale", secret, "--key", "k", "--wait")
    assert said.code == 0, said.err
    assert secret in terminal("show", "k").out and secret in terminal("history", "k", "--full").out
    monkeypatch.delenv("PERDURE_SEAL")
    for words in (("show", "k"), ("show", "k", "--json"), ("history", "k"), ("history", "k", "--json"), ("ps",)):
        blind = terminal(*words)
        assert blind.code == 0 and secret not in blind.out
    assert "PERDURE_SEAL" in terminal("show", "k").out


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1", "neither"),
        ("1/0", "ZeroDivisionError"),
        (None, "does not import"),
        ("codecs = []", ""),
        ("from perdure import codec\ncodecs = codec.Zstd()", "Give a list, even for a single codec"),
        ("codecs = [7]", "7 is no codec: it lacks name, hides"),
        ("offload = 'folder'", "'folder' is no offload: it lacks above"),
    ],
)
def test_a_module_of_codecs_that_is_none_is_refused_with_what_to_do(
    sqlite_terminal: Terminal, seal: Path, source: str | None, told: str
) -> None:
    seal.unlink() if source is None else seal.write_text(source)
    said = sqlite_terminal("migrate")
    assert said.code == (1 if told else 0) and told in said.err


@pytest.mark.parametrize("odd", ["abc", "-1", "0", "1e9", "٣", "9" * 30])
def test_a_limit_in_the_environment_that_is_no_number_is_refused(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_PAYLOAD_BYTES", odd)
    wrong = runpy.run_path(limits.__file__)["WRONG_RECORDS"]
    assert wrong == [f"PERDURE_PAYLOAD_BYTES is {odd!r}. Give a whole number above 0, or unset it."]
    monkeypatch.setattr(limits, "WRONG_RECORDS", wrong)
    with pytest.raises(InvalidInput, match=re.escape(wrong[0])):
        Engine("sqlite:///:memory:")


def test_the_limit_of_a_payload_can_be_raised_only_with_an_offload(sqlite_url: str, seal: Path) -> None:
    program = (
        "import asyncio, perdure\n"
        "@perdure.workflow\n"
        "async def echo(text: str) -> int:\n"
        "    return len(text)\n"
        "async def main():\n"
        f"    async with perdure.Engine({sqlite_url!r}, work=True) as engine:\n"
        "        print(await (await engine.start(echo, 'é' * 2_000_000)).result())\n"
        "asyncio.run(main())\n"
    )

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        )  # fmt: skip

    assert "PayloadTooLarge" in run().stderr
    assert "PERDURE_PAYLOAD_BYTES is 'abc'. Give a whole number" in run(PERDURE_PAYLOAD_BYTES="abc").stderr
    assert "Give the engine an offload" in run(PERDURE_PAYLOAD_BYTES="8000000", PERDURE_SEAL="").stderr
    assert run(PERDURE_PAYLOAD_BYTES="8000000").stdout == "2000000\n"
