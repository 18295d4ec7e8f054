"""The verb ``worker``: real OS processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from perdure import Engine
from perdure.cli.exit_code import INTERRUPTED
from perdure.store.url import without_password
from tests.cli import poor, stubborn, till
from tests.cli.terminal import Program, Terminal

TILL = "tests.cli.till"
STUBBORN = ("tests.cli.stubborn", "--stop", "3600", "--json")


def run(terminal: Terminal, programs: list[Program], *words: str, **environment: str) -> Program:
    """Start ``perdure worker`` with these words and have it ended with the test."""
    programs.append(terminal.program("worker", *words, **environment))
    return programs[-1]


def begun(folder: Path) -> list[int]:
    """The OS process ids in which the held step has begun."""
    return [int(path.name.removeprefix("begun-")) for path in folder.glob("begun-*")]


def hold_in(terminal: Terminal, folder: Path) -> int:
    """Start a process whose step is held; the answer is the pid of the worker that has it in hand."""

    async def start() -> int:
        async with Engine(terminal.url) as client:
            await client.start(till.holding.options(key="H-1"), str(folder))
            async with asyncio.timeout(30):
                while not begun(folder):
                    await asyncio.sleep(0.01)
        return begun(folder)[0]

    return asyncio.run(start())


def result_of(terminal: Terminal, key: str) -> object:
    """Wait for a process to end and give its result."""

    async def wait() -> object:
        async with Engine(terminal.url) as client:
            return await (await client.handle("holding", key)).result(30)

    return asyncio.run(wait())


def alive(pid: int) -> bool:
    """Whether an OS process that is no child of ours still runs."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if Path("/proc").exists() else ""
    except (ProcessLookupError, FileNotFoundError):  # the second if it ends between the two lines
        return False
    return state != "Z"


async def _gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while alive(pid):
            await asyncio.sleep(0.02)


def wait_until_gone(pid: int) -> None:
    """Wait for the end of an OS process that is no child of ours."""
    asyncio.run(_gone(pid))


def test_a_worker_runs_what_a_client_has_started(terminal: Terminal, programs: list[Program], tmp_path: Path) -> None:
    programs.append(worker := terminal.program("worker", TILL, "--json", prepared=False))
    worker.line_with('"event":"started"')
    pid = hold_in(terminal, tmp_path)
    assert pid == worker.process.pid  # no parent: the worker took the place of its starter
    (tmp_path / "go").touch()
    assert result_of(terminal, "H-1") == "let go"
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert '"completed":1' in worker.line_with('"event":"stopped"')


def test_the_log_as_json_is_one_object_a_line_with_the_process_and_the_step_as_fields(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    worker = run(sqlite_terminal, programs, TILL, "--log-format", "json", "--log-level", "warning")
    sqlite_terminal("start", f"{TILL}:refusal", "no money", "--key", "A-1")
    told = json.loads(worker.line_with('"perdure.process"'))
    assert (told["level"], told["process_kind"], told["process_key"]) == ("error", "refusal", "A-1")
    assert "ValueError: no money" in told["message"] and "Traceback" in told["message"]
    assert json.loads(worker.line_with('"perdure.step"'))["attempt"] == 1
    assert not [line for line in worker.lines if '"level": "info"' in line]


def test_a_first_signal_lets_steps_finish_and_nothing_new_begin(
    sqlite_terminal: Terminal, programs: list[Program], tmp_path: Path
) -> None:
    worker = run(sqlite_terminal, programs, TILL, "--stop", "30")
    worker.line_with(" hosts ")
    hold_in(sqlite_terminal, tmp_path)
    worker.signal(signal.SIGINT)
    worker.line_with("stopping: the steps of 1 processes")  # it has heard the signal, and begins nothing from now on
    sqlite_terminal("start", f"{TILL}:sale", "A-1", "--key", "A-1")
    (tmp_path / "go").touch()
    assert worker.wait() == 0
    assert sqlite_terminal("show", "H-1", "--json").json["events"] >= 1
    assert sqlite_terminal("show", "A-1", "--json").json["events"] == 0


def test_a_second_signal_hands_everything_back_at_once(
    sqlite_terminal: Terminal, programs: list[Program], tmp_path: Path
) -> None:
    worker = run(sqlite_terminal, programs, TILL, "--stop", "3600")
    worker.line_with(" hosts ")
    hold_in(sqlite_terminal, tmp_path)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0
    seen = sqlite_terminal("show", "H-1", "--json").json
    assert (seen["status"], seen["owner"], seen["deaths"]) == ("running", None, 0)


def leave_behind(terminal: Terminal, what: str) -> None:
    """Have the worker left with something that does not end."""

    async def left() -> str:
        async with Engine(terminal.url) as client:
            return await (await client.start(stubborn.leaving, what)).result(30)

    assert asyncio.run(left()) == f"left a {what}"


def test_a_call_that_hangs_in_a_thread_of_the_event_loop_keeps_no_worker_from_its_end(
    terminal: Terminal, programs: list[Program]
) -> None:
    worker = run(terminal, programs, *STUBBORN, PERDURE_TEST_GRACE="3600")
    worker.line_with('"event":"started"')
    leave_behind(terminal, "call")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert '"completed":1' in worker.line_with('"event":"stopped"')


@pytest.mark.parametrize("what", ["task", "call of its own"])
def test_a_worker_that_has_stopped_ends_in_any_case_a_little_later(
    sqlite_terminal: Terminal, programs: list[Program], what: str
) -> None:
    worker = run(sqlite_terminal, programs, *STUBBORN, PERDURE_TEST_GRACE="0.2")
    worker.line_with('"event":"started"')
    leave_behind(sqlite_terminal, what)
    worker.signal(signal.SIGTERM)
    worker.line_with('"event":"stopped"')
    assert worker.wait() == 0


def test_a_second_signal_ends_a_worker_that_has_stopped_at_once(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    worker = run(sqlite_terminal, programs, *STUBBORN, PERDURE_TEST_GRACE="3600")
    worker.line_with('"event":"started"')
    leave_behind(sqlite_terminal, "task")
    worker.signal(signal.SIGTERM)
    worker.line_with('"event":"stopped"')
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_second_signal_ends_a_worker_that_cannot_hand_back_a_little_later(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    given = {"PERDURE_TEST_GRACE": "0.2", "PERDURE_TEST_UNCLOSED": "1"}
    worker = run(sqlite_terminal, programs, *STUBBORN, **given)
    worker.line_with('"event":"started"')
    worker.signal(signal.SIGTERM)
    worker.line_with("it is to be closed")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == INTERRUPTED


def test_a_member_that_is_killed_is_replaced_and_its_process_goes_on(
    terminal: Terminal, programs: list[Program], tmp_path: Path
) -> None:
    pool = run(terminal, programs, TILL, "--workers", "2")
    members = {pool.pid_hosting(1), pool.pid_hosting(2)}
    victim = hold_in(terminal, tmp_path)
    assert victim in members
    os.kill(victim, signal.SIGKILL)
    pool.line_with(f"worker {victim} was killed by SIGKILL; another takes its place in 0.5 s")
    assert pool.pid_hosting(3) not in members
    (tmp_path / "go").touch()
    assert result_of(terminal, "H-1") == "let go"
    assert terminal("history", "H-1").has("revived", f":{victim} ", "died with it in hand (1 so far)")
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0
    assert not any(alive(pid) for pid in members)


def test_a_member_that_cannot_start_for_a_while_is_tried_again_and_then_the_pool_is_whole(
    sqlite_terminal: Terminal, programs: list[Program], tmp_path: Path
) -> None:
    module = tmp_path / "shop_of_today.py"
    module.write_text(whole := "from perdure import workflow\n\n\n@workflow\nasync def sale() -> None: ...\n")
    words = ("worker", module.stem, "--workers", "2", "--stop", "0.1")
    programs.append(pool := sqlite_terminal.program(*words, PYTHONPATH=f"src:.:{tmp_path}"))
    members = {pool.pid_hosting(1), pool.pid_hosting(2)}
    module.write_text(whole + "@workflow  # a deployment has copied half of it so far\n")
    os.kill(victim := min(members), signal.SIGKILL)
    pool.line_with(f"worker {victim} was killed by SIGKILL; another takes its place in 0.5 s")
    assert "does not import" in pool.line_with("perdure: ")
    pool.line_with("could not start, as told above (exit code 78); another takes its place in ")
    module.write_text(whole)
    assert pool.pid_hosting(3) not in members
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0


def test_a_member_that_is_out_of_threads_for_good_makes_room_for_another(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    words = ("worker", "tests.cli.poor", "--workers", "2", "--stop", "0.1")
    pool = sqlite_terminal.program(*words, PERDURE_TEST_POOR="1")
    programs.append(pool)
    members = {pool.pid_hosting(1), pool.pid_hosting(2)}

    async def use_up() -> None:
        async with Engine(sqlite_terminal.url) as client:
            handles = [await client.start(poor.hanging) for _ in range(4)]  # two for each member
            assert [await handle.result(30) for handle in handles] == ["left behind"] * 4

    async def add() -> int:
        async with Engine(sqlite_terminal.url) as client:
            return await (await client.start(poor.adding, 41)).result(30)

    asyncio.run(use_up())
    pool.line_with("does not recover: restart it")
    pool.line_with("ended with exit code 75; another takes its place")
    assert pool.pid_hosting(3) not in members
    assert asyncio.run(add()) == 42
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0


def test_members_end_when_their_parent_dies_without_a_word(
    sqlite_terminal: Terminal, programs: list[Program], tmp_path: Path
) -> None:
    pool = run(sqlite_terminal, programs, TILL, "--workers", "2", "--stop", "0.1")
    members = [pool.pid_hosting(1), pool.pid_hosting(2)]
    hold_in(sqlite_terminal, tmp_path)
    pool.signal(signal.SIGKILL)
    for member in members:
        wait_until_gone(member)
    seen = sqlite_terminal("show", "H-1", "--json").json
    assert (seen["status"], seen["owner"]) == ("running", None)  # handed back, not lost


@pytest.mark.parametrize("size", ["1", "3"])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("tests.cli.nowhere", "there is no module 'tests.cli.nowhere'"),
        ("broken_till", "module 'broken_till' does not import: ZeroDivisionError: division by zero"),
        ("json", "defines no workflow"),
        ("./nowhere.py", "there is no file nowhere.py"),
    ],
)
def test_a_module_that_does_not_import_is_said_once_and_ends_the_worker(
    sqlite_terminal: Terminal, programs: list[Program], tmp_path: Path, module: str, words: str, size: str
) -> None:
    (tmp_path / "broken_till.py").write_text("1 / 0\n")
    programs.append(sqlite_terminal.program("worker", module, "--workers", size, PYTHONPATH=f"src:.:{tmp_path}"))
    assert programs[-1].wait() == 1
    said = [line for line in programs[-1].lines if line.startswith("perdure: ")]
    assert len(said) == 1 and words in said[0]
    assert "Traceback" not in "\n".join(programs[-1].lines)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--lease", "1", "--beat", "0.9"), "a lease must last at least two beats"),
        (("--workers", "0"), "--workers 0 would do nothing"),
        (("--in-flight", "0"), "a worker must hold at least one process"),
    ],
)
def test_worker_options_that_cannot_work_are_refused_before_anything_starts(
    sqlite_terminal: Terminal, programs: list[Program], words: tuple[str, ...], refusal: str
) -> None:
    worker = run(sqlite_terminal, programs, TILL, *words)
    assert worker.wait() == 2
    assert refusal in worker.line_with("perdure: ")


@pytest.mark.parametrize("size", ["1", "2"])
def test_a_wrong_url_is_wrong_usage_of_one_worker_and_of_several(programs: list[Program], size: str) -> None:
    worker = run(Terminal("mysql://localhost/shop"), programs, TILL, "--workers", size)
    assert worker.wait() == 2
    assert "no store is known for a URL that begins with 'mysql'" in worker.line_with("perdure: ")


def test_a_worker_waits_for_a_database_that_is_not_there_yet(programs: list[Program]) -> None:
    worker = run(Terminal("postgresql://ann:secret@127.0.0.1:1/shop"), programs, TILL, "--workers", "2")
    said = worker.line_with("Trying again every few seconds.")
    assert "secret" not in said
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_file_that_cannot_be_written_ends_the_worker_with_its_reason(programs: list[Program], tmp_path: Path) -> None:
    worker = run(Terminal(f"sqlite:///{tmp_path}/no/such/folder/shop.db"), programs, TILL, "--workers", "2")
    assert worker.wait() == 1
    assert "check that its folder exists" in worker.line_with("perdure: ")


def test_a_worker_serves_the_queues_that_it_is_told(terminal: Terminal, programs: list[Program]) -> None:
    office = run(terminal, programs, TILL, "--queues", "nothing", "--json")
    counter = run(terminal, programs, TILL, "--no-workflows", "--queues", "counter=3", "--json")
    for worker in (office, counter):
        worker.line_with('"event":"started"')

    async def stamped() -> object:
        async with Engine(terminal.url) as client:
            return await (await client.start(till.stamping, "form 7")).result(30)

    assert asyncio.run(stamped()) == f"form 7 stamped by {counter.process.pid}"
    assert [row["kind"] for row in terminal("ps", "--json").json] == ["stamping"]
    assert [row["kind"] for row in terminal("ps", "--kind", "@counter", "--json").json] == ["@counter"]


def test_a_limit_of_a_queue_that_is_no_number_is_refused(terminal: Terminal) -> None:
    said = terminal("worker", TILL, "--queues", "counter=many")
    assert said.code != 0
    assert "'many' is not a whole number; write bank=5" in " ".join(said.err.split())


def test_a_worker_says_first_what_it_hosts_on_which_database_and_no_password(
    sqlite_url: str, programs: list[Program], tmp_path: Path
) -> None:
    worker = run(Terminal(sqlite_url), programs, TILL, "--queues", "bank=5", "--json")
    line = worker.line_with(" hosts ")
    assert f", serves queue bank; database sqlite:///{tmp_path}/perdure.db; Perdure " in line
    assert f'"database":"sqlite:///{tmp_path}/perdure.db"' in worker.line_with('"event":"started"')
    assert '"queues":["bank"]' in worker.line_with('"event":"started"')


def test_a_worker_without_a_pool_says_how_to_use_the_other_cores(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    cores = len(os.sched_getaffinity(0))
    alone = run(sqlite_terminal, programs, TILL).line_with(" hosts ")
    assert alone.endswith(f"it uses one of {cores} cores: --workers {cores} uses all") is (cores > 1)
    assert "cores" not in run(sqlite_terminal, programs, TILL, "--workers", "2").line_with(" hosts ")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ana:se@cr/et@one,two:5433/shop?schema=mine", "postgresql://one,two:5433/shop"),
        ("postgresql://db/shop?password=secret", "postgresql://db/shop"),
        ("sqlite:////var/lib/shop.db", "sqlite:////var/lib/shop.db"),
        ("sqlite://:memory:", "sqlite://:memory:"),
    ],
)
def test_the_name_of_a_database_has_no_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_start_that_waits_says_that_nobody_hosts_the_workflow(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    programs.append(sqlite_terminal.program("start", f"{TILL}:sale", "A-1", "--wait"))
    line = programs[-1].line_with("no live worker")
    assert line.endswith("hosts workflow 'sale' version 'tests.cli.till:sale'. Start one: perdure worker MODULE")
