"""The wall: I/O in a turn fails at once and says where it belongs; reading code and logging go on; steps are free."""

from __future__ import annotations

import asyncio
import builtins
import io
import linecache
import logging
import os
import pickle
import random
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from time import time as bare_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, WorkflowMisuse
from perdure.turns.sandbox import static_check
from tests.authoring.life import BIRTH, Life
from tests.source import PYTHONPATH

ATTEMPTS: dict[str, Callable[[], Any]] = {
    "open": lambda: open("/etc/hostname"),  # noqa: SIM115
    "read_text": lambda: Path("/etc/hostname").read_text(),
    "listdir": lambda: os.listdir("."),
    "remove": lambda: os.remove("nothing"),
    "socket": socket.socket,
    "getaddrinfo": lambda: socket.getaddrinfo("localhost", 80),
    "subprocess": lambda: subprocess.run(["true"]),
    "system": lambda: os.system("true"),
    "sqlite3": lambda: sqlite3.connect(":memory:"),
    "sleep": lambda: time.sleep(0),
    "thread": lambda: threading.Thread(target=print).start(),
    "input": lambda: builtins.input(),
    "uuid1": lambda: uuid.uuid1(),
}


@workflow
async def reaching_out(name: str) -> str:
    try:
        ATTEMPTS[name]()
    except WorkflowMisuse as error:
        return str(error)
    return "let through"


@pytest.mark.parametrize("name", ATTEMPTS)
def test_io_in_workflow_code_is_refused_at_once_and_told_to_belong_in_a_step(name: str) -> None:
    assert "belongs in a step" in str(Life(reaching_out, [name]).seen[0].outcome)


PROGRAM = """
from tests.authoring.life import Life
from tests.authoring.test_wall import reaching_out

print(Life(reaching_out, ["open"]).seen[0].outcome)
"""


@pytest.mark.parametrize(
    "words",
    [["-c", "import program"], ["-m", "pdb", "-c", "continue", "-c", "quit", "program.py"]],
    ids=["imported", "debugged"],
)
def test_io_is_refused_also_in_a_program_that_is_imported_or_debugged(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert "belongs in a step" in done.stdout, done.stderr


@pytest.mark.parametrize("name", ["open", "listdir", "socket", "sqlite3", "sleep", "thread", "uuid1"])
def test_outside_of_a_turn_io_is_free(name: str) -> None:
    Life(reaching_out, [name])
    outcome = ATTEMPTS[name]()
    if hasattr(outcome, "close"):
        outcome.close()


@workflow
async def reading() -> list[str]:
    linecache.clearcache()
    sys.modules.pop("colorsys", None)
    import colorsys

    try:
        raise ValueError("shown with its source")
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
    logging.getLogger("shop").warning("seen")
    zone = datetime.fromtimestamp(time.time(), ZoneInfo("Europe/Berlin")).tzname() or ""
    return [colorsys.__name__, str("shown with" in shown), zone]


def test_imports_stack_traces_time_zones_and_logging_go_on_in_a_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("shop")
    file = logging.FileHandler(tmp_path / "log", delay=True)
    log.addHandler(file)
    try:
        assert Life(reading).seen[0].outcome == '["colorsys","True","CET"]'
    finally:
        log.removeHandler(file)
        file.close()
    assert (tmp_path / "log").read_text() == "seen\n"
    assert caplog.records[0].created == BIRTH / 1e6


@workflow
async def calendar() -> list[str]:
    return [
        time.strftime("%Y-%m-%d", time.gmtime()),
        time.strftime("%Y-%m-%d"),
        (time.ctime() == time.ctime(time.time()) and "same") or "",
        (time.asctime() == time.asctime(time.localtime(time.time())) and "same") or "",
        time.strftime("%Y", time.gmtime(0)),
        str(time.clock_gettime(time.CLOCK_REALTIME) == time.time()),
    ]


def test_the_calendar_of_a_turn_is_that_of_its_time() -> None:
    year = str(Life(calendar).seen[0].outcome)
    assert year.startswith('["2027-01-15","2027-01-15","same","same","1970","True"]')


def test_gates_are_the_functions_that_they_stand_for() -> None:
    Life(calendar)
    assert pickle.loads(pickle.dumps(time.sleep)) is time.sleep  # noqa: S301
    assert repr(time.sleep) == repr(time.sleep.__wrapped__)
    assert time.monotonic.__name__ == "monotonic"
    random.seed(7)
    first = random.random()
    assert first == random.Random(7).random()

    class Clock:
        read = time.time

    assert Clock().read() > 0


def test_another_thread_has_the_machines_clock_while_a_turn_runs() -> None:
    seen: list[float] = []
    ready, go = threading.Event(), threading.Event()

    def other() -> None:
        ready.wait(5)
        seen.append(time.time())
        go.set()

    thread = threading.Thread(target=other)
    thread.start()

    @workflow
    async def meeting() -> bool:
        ready.set()
        return go.wait(5) and time.time() == BIRTH / 1e6

    assert Life(meeting).seen[0].outcome == "true"
    thread.join()
    assert seen[0] != BIRTH / 1e6


def test_a_coroutine_that_nobody_awaits_is_still_told_outside_of_eviction() -> None:
    Life(calendar)

    async def forgotten() -> None: ...

    with pytest.warns(RuntimeWarning, match="was never awaited"):
        forgotten()


# -- what no gate can stop is read in the code -------------------------------------------------------------------------


async def named_now() -> str:
    return str(datetime.now())  # noqa: DTZ005


async def named_today() -> str:
    return str(date.today())  # noqa: DTZ011


async def bare() -> float:
    return bare_time()


async def imported_inside() -> str:
    from datetime import datetime as moment

    return str(moment.utcnow())  # noqa: DTZ003  # noqa: DTZ003


async def by_its_module() -> str:
    import datetime

    return str(datetime.datetime.now(datetime.UTC))


async def in_another() -> str:
    return await named_now()


async def in_a_lambda() -> str:
    return (lambda: [date.today() for _ in "x"])()[0].isoformat()  # noqa: DTZ011


def by_closure() -> Any:
    clock = date

    async def closing() -> str:
        return str(clock.today())

    return closing


@pytest.mark.parametrize(
    "function",
    [named_now, named_today, bare, imported_inside, by_its_module, in_another, in_a_lambda, by_closure()],
    ids=lambda function: function.__name__,
)
def test_code_that_reads_the_clock_past_the_wall_is_refused_when_it_is_defined(function: Any) -> None:
    with pytest.raises(DefinitionError, match="would differ at every replay"):
        workflow(function)


async def innocent(order: date) -> str:
    now = datetime.fromtimestamp(time.time(), ZoneInfo("UTC"))
    text = io.StringIO(str(order))
    today = text.getvalue()
    return f"{now} {today} {asyncio.get_running_loop().time()} {random.random()} {uuid.uuid4()}"


def test_code_that_the_wall_can_answer_is_accepted() -> None:
    static_check.check(innocent, "it")
