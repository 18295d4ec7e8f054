"""A program of the prepared Python cannot be told from one that was started by itself."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.terminal import Program
from tests.prepared import LENGTH, prepared
from tests.source import PYTHONPATH, SOURCE

LIMIT = 30.0

SHOP = """
import os, sys
from perdure import workflow

@workflow
async def order(name: str) -> str:
    return name

if __name__ == "__main__":
    print(sys.argv[1:], __file__, sys.path[0], os.getpid() == os.getsid(0))
    sys.exit(7)
"""

OURS = """
import os, signal
from tests.prepared import prepared

code = "import signal; print('begun', flush=True); signal.pause()"
program = prepared().start(["-c", code], dict(os.environ), (os.dup(0), os.dup(1), os.dup(2)))
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of its own."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def both(line: str, folder: Path) -> Sequence[subprocess.CompletedProcess[str]]:
    """What a line for the shell comes to with the prepared Python, and then with Python itself."""
    own = {"PERDURE_URL": f"sqlite:///{folder}/one.db", "COLUMNS": "60", "PYTHONPATH": SOURCE}
    return [
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.replace("python", shlex.join(python))], cwd=folder,
            env={**os.environ, **own}, capture_output=True, text=True, check=False, start_new_session=True,
        )
        for python in (prepared().command, [sys.executable])
    ]  # fmt: skip


@pytest.mark.long
def test_it_has_the_words_the_environment_the_folder_and_the_exit_code_of_each_command(folder: Path) -> None:
    for line in (
        "migrate",
        "start shop:order 'two words' --key A-1",
        "show A-1 --json | head -c 2",
        "history A-1",
        "show",
        "--help",
    ):
        forked, plain = both(f"python -m perdure {line}", folder)
        assert forked.returncode == plain.returncode
        if not line.startswith(("migrate", "start")):  # which say the second time that all is there already
            assert (forked.stdout, forked.stderr) == (plain.stdout, plain.stderr)
    assert (folder / "one.db").exists()


@pytest.mark.parametrize(
    "line",
    [
        "python shop.py a 'b c'",
        """python -c "import shop, sys; print(sys.argv, sys.path[0], __name__, shop.order.name)" x""",
        "python -m shop a",
        "python -P -c 'import sys; print(sys.path[0])'",
        "TZ=Asia/Tokyo python -c 'import time; print(time.strftime(chr(37) + chr(90)))'",
        "python -c 'import os, signal; os.kill(os.getpid(), signal.SIGTERM)'",
        "python -c 'import sys; print(input()); print(2, file=sys.stderr)' <<< three",
    ],
)
def test_a_file_a_module_and_a_line_of_code_run_as_they_do_in_python(folder: Path, line: str) -> None:
    forked, plain = both(line, folder)
    assert (forked.returncode, forked.stdout, forked.stderr.replace("bash: line 1: ", "")) == (
        plain.returncode, plain.stdout, plain.stderr.replace("bash: line 1: ", "")
    )  # fmt: skip


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_ends_with_whoever_gave_it(how: signal.Signals, folder: Path) -> None:
    line = shlex.join([*prepared().command, "-m", "perdure", "worker", "shop"])
    own = {"PERDURE_URL": f"sqlite:///{folder}/one.db", "PYTHONPATH": SOURCE}
    given = subprocess.Popen(
        ["sh", "-c", f"exec {line}"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, **own}, text=True,
    )  # fmt: skip
    assert given.stdout is not None
    said = next(line for line in given.stdout if " hosts " in line)
    worker = int(said.partition("worker ")[2].split()[0])
    assert worker != given.pid
    given.send_signal(how)
    given.stdout.read()  # ends when the worker, which has it open too, is gone
    assert given.wait() == (0 if how is signal.SIGINT else -how)
    given.stdout.close()


def test_one_that_is_forked_from_here_has_a_session_of_its_own_and_tells_what_ended_it(programs: list[Program]) -> None:
    code = "import os, time; print(os.getpid(), os.getsid(0), flush=True); time.sleep(60)"
    programs.append(Program(["-c", code], {}))
    [pid, session] = programs[0].line_with(" ").split()
    assert int(pid) == int(session) == programs[0].process.pid and programs[0].process.poll() is None
    programs[0].signal(signal.SIGKILL)
    assert programs[0].wait() == -signal.SIGKILL
    programs[0].signal(signal.SIGTERM)  # which nobody gets


def test_one_that_is_forked_ends_with_the_tests_when_their_whole_group_is_ended(tmp_path: Path) -> None:
    ours = tmp_path / "ours.py"
    ours.write_text(OURS)
    with subprocess.Popen(
        [sys.executable, str(ours)], env={**os.environ, "PYTHONPATH": PYTHONPATH},
        stdout=subprocess.PIPE, start_new_session=True,
    ) as tests:  # fmt: skip
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"begun\n"
        os.killpg(tests.pid, signal.SIGTERM)
        assert tests.stdout.read() == b""  # ends when the program, which has it open too, is gone


def test_one_whose_giver_is_gone_before_it_has_heard_of_it_ends_all_the_same() -> None:
    ends, held = os.pipe()
    link = prepared().ask(["-c", "import signal; signal.pause()"], dict(os.environ), (ends, held, held))
    os.close(held)
    link.close()
    with open(ends, "rb") as printed:
        assert printed.read() == b""  # ends when the program is gone


def test_a_signal_that_comes_before_the_pid_of_the_program_is_passed_on_to_it(tmp_path: Path) -> None:
    *command, _ = prepared().command
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        with subprocess.Popen([*command, str(tmp_path / "socket")]) as command_line:
            link, _ = server.accept()
            with link, subprocess.Popen(["sleep", "60"]) as program:
                command_line.send_signal(signal.SIGTERM)
                link.sendall(program.pid.to_bytes(LENGTH, "big"))
                assert program.wait(LIMIT) == -signal.SIGTERM
                link.sendall((0).to_bytes(LENGTH, "big"))
                assert command_line.wait(LIMIT) == 0
