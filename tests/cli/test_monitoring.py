"""What a monitoring system and an operator see: `worker --metrics`, `health` and `top`, on both stores."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from perdure import Engine
from perdure.cli.top import Glance, parts
from perdure.cli.workers import Line
from perdure.client.queue_figures import QueueFigures
from perdure.client.view import instant
from perdure.kernel.figures import Figures, figures_of
from perdure.kernel.worker import Beat, WorkerRow
from perdure.monitoring.catalogue import METRICS
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Program, Terminal

TILL = "tests.cli.till"


def page(port: int, path: str, method: str = "GET", token: str = "") -> tuple[int, str]:
    """What one page answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def port_of(program: Program, count: int = 1) -> int:
    """Where the count-th worker that has said so serves its metrics."""
    told: int = json.loads(program.line_with('"started"', count=count))["metrics"]
    return told


def sell(terminal: Terminal) -> None:
    """Have the workers of a store sell something."""

    async def run() -> None:
        async with Engine(terminal.url) as client:
            await (await client.start(till.sale, "A-1")).result(30)

    asyncio.run(run())


def test_a_worker_with_metrics_waits_for_a_database_that_is_not_there_yet(programs: list[Program]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as away:
        away.settimeout(30)
        url = f"postgresql://ann@127.0.0.1:{away.getsockname()[1]}/shop?sslmode=disable"
        programs.append(worker := Terminal(url).program("worker", TILL, "--metrics", "0"))
        for _ in range(3):  # it asks again and again
            away.accept()[0].close()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert not [line for line in worker.lines if line.startswith("perdure: ")]


def test_a_worker_serves_its_metrics_and_says_that_it_lives_and_is_ready(
    terminal: Terminal, programs: list[Program]
) -> None:
    assert terminal("breaker", "reset", "bank").code == 0
    programs.append(terminal.program("worker", TILL, "--metrics", "0", "--json", "--beat", "0.2"))
    port = port_of(programs[0])
    sell(terminal)
    families: dict[str, Metric] = {}
    ended: float | None = None
    # queues and breakers are in them once it has read those; an end is known to its caller before its worker counts it
    while METRICS.keys() - families.keys() or not ended:
        status, text = page(port, "/metrics")
        assert status == 200
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = {
            (sample.name, sample.labels.get("kind")): sample.value for f in families.values() for sample in f.samples
        }
        ended = samples.get(("perdure_process_duration_seconds_count", "sale"))
    assert "process_resident_memory_bytes" in families
    assert ended == 1
    assert page(port, "/health") == (200, "passing: the event loop turns\n")
    assert page(port, "/ready?full=1") == (200, "ready\n")
    assert page(port, "/secret") == (404, "there are /health, /metrics, /ready\n")
    assert page(port, "/metrics", "POST") == (405, "only GET and HEAD\n")
    assert page(port, "/ready", "HEAD") == (200, "")
    while not (one := terminal("workers", "--json").json[0])["metrics"]:
        pass  # its next heartbeat tells the port
    assert (one["metrics"], one["slots"]) == (port, 2000)
    programs[0].signal(15)
    assert programs[0].wait() == 0


def test_each_worker_of_a_pool_has_a_port_of_its_own_from_the_given_one_on(
    sqlite_terminal: Terminal, programs: list[Program], unused_ports: int
) -> None:
    port = str(unused_ports)
    programs.append(sqlite_terminal.program("worker", TILL, "--metrics", port, "--workers", "2", "--json"))
    assert {port_of(programs[0], count) for count in (1, 2)} == {unused_ports, unused_ports + 1}
    assert all(page(unused_ports + number, "/health")[0] == 200 for number in (0, 1))


def test_a_worker_whose_port_is_taken_says_so_and_does_not_start(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    programs.append(sqlite_terminal.program("worker", TILL, "--metrics", "0", "--json"))
    port = port_of(programs[0])
    programs.append(sqlite_terminal.program("worker", TILL, "--metrics", str(port)))
    assert f"metrics cannot be served at 127.0.0.1:{port}" in programs[1].line_with("cannot be served")
    assert programs[1].wait() == 1


def test_a_worker_with_a_token_in_its_environment_tells_its_metrics_to_those_who_send_it(
    sqlite_terminal: Terminal, programs: list[Program]
) -> None:
    token = "0123456789abcdef0123456789abcdef"
    words = ("worker", TILL, "--metrics", "0", "--metrics-host", "0.0.0.0", "--json")
    programs.append(sqlite_terminal.program(*words, prepared=False, PERDURE_METRICS_TOKEN=token))
    port = port_of(programs[0])
    assert (page(port, "/metrics")[0], page(port, "/health")) == (401, (200, "OK\n"))
    assert page(port, "/metrics", token=token)[0] == 200
    pid = json.loads(programs[0].line_with('"started"'))["pid"]
    words_of_it = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert TILL.encode() in words_of_it and token.encode() not in words_of_it


def test_metrics_that_anybody_could_read_are_refused_before_a_worker_starts(sqlite_terminal: Terminal) -> None:
    said = sqlite_terminal("worker", TILL, "--metrics", "0", "--metrics-host", "0.0.0.0")
    assert said.code == 2 and "metrics at 0.0.0.0 could be read by whoever reaches this machine" in said.err


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_what_is_no_port_is_refused_before_anything_starts(sqlite_terminal: Terminal, port: str) -> None:
    said = sqlite_terminal("worker", TILL, "--metrics", port)
    assert said.code == 2 and "is no port for 1 workers" in said.err


@pytest.fixture
def unused_ports() -> int:
    """The first of two ports in a row that are free."""
    import socket

    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def test_health_passes_warns_and_is_critical_by_its_exit_code(terminal: Terminal, working: Working) -> None:
    assert terminal("health").code == 0, "nothing runs, so that nobody need work"
    said = asyncio.run(_start(terminal))
    said = terminal("health")
    assert said.code == 2 and said.has("workers critical no worker is alive, and 1 processes run")
    assert said.has("hosted warning no living worker serves what waits: 1 of sale")

    async def look(engine: Engine) -> Any:
        await (await engine.handle("sale", "S-1")).result(30)
        passing = await asyncio.to_thread(terminal, "health", "--json")
        handle = await engine.start(till.approval.options(key="A-1"), "x")
        await handle.hold(who="Ann")
        await engine.recovery.pause(who="Ann", why="the release")
        return passing, await asyncio.to_thread(terminal, "health")

    passing, warning = working(look)
    assert passing.code == 0 and passing.json["level"] == "passing"
    assert {one["level"] for one in passing.json["findings"]} == {"passing"}
    assert warning.code == 1
    assert warning.has("people warning processes wait for a person: 1 held. `perdure ps --status held` lists")
    assert not warning.has("`perdure failures`")
    assert warning.has("recovery warning automatic recovery is paused by Ann: the release")


async def _start(terminal: Terminal) -> None:
    async with Engine(terminal.url) as client:
        await client.start(till.sale.options(key="S-1"), "A-1")


def test_a_database_that_is_not_there_is_critical() -> None:
    said = Terminal("sqlite:////no/such/folder/perdure.db")("health")
    assert said.code == 2 and said.has("database critical the database cannot be opened")
    assert Terminal("sqlite://:memory:")("health", "--timeout", "0").code == 2


def test_top_shows_workers_and_queues_once_for_people_and_for_programs(
    terminal: Terminal, working: Working, tmp_path: object
) -> None:
    async def hold(engine: Engine) -> tuple[Any, Any]:
        await engine.start(till.holding.options(key="H-1"), str(tmp_path))
        assert engine.worker is not None
        while figures_of((await engine.store.workers())[0].figures).held != 1:
            engine.worker.heartbeat.loop.wake()
            await engine.store.now()
        return (
            await asyncio.to_thread(terminal, "top", "--once"),
            await asyncio.to_thread(terminal, "top", "--json"),
        )

    people, programs = working(hold)
    assert people.has("1 workers held 1 of 2,000") and people.has(
        "worker state held free steps/s errors/s ends/s polled"
    )
    assert people.has("queue waiting delayed running oldest workers") and people.has("counter 0 0 0 1")
    [worker] = programs.json["workers"]
    assert (worker["held"], worker["slots"]) == (1, 2000)
    assert [one["name"] for one in programs.json["queues"]] == ["counter"]
    said = terminal("top", "--every", "1ms")
    assert said.code == 2 and "too often or too seldom" in said.err


def test_top_fits_into_80_columns_and_long_names_are_cut_visibly(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    now = instant(1_800_000_000_000_000)
    row = WorkerRow(bytes(16), f"{'long-host-name.' * 6}example:4711", due_at=1_800_000_000_000_000 + 1)
    line = Line.of(row, 1999, now)
    queues = [QueueFigures("q" * 100, 99_999, 88_888, 77_777, 123_456.0, 12)]
    Console(width=80).print(*parts(Glance(now, [line], queues)), sep="\n")
    lines = capsys.readouterr().out.splitlines()
    assert lines and max(map(len, lines)) <= 80
    assert not any(one.startswith("    ") for one in lines), "no row needs a second line"
    assert any("…" in one for one in lines)


def test_what_a_full_worker_holds_is_shown_as_it_tells_it(terminal: Terminal, working: Working) -> None:
    figures = Figures(at=1, held=1900, slots=2000)

    async def enlisted(engine: Engine) -> tuple[Any, Any]:
        assert engine.worker is not None
        await engine.worker.heartbeat.loop.stop()
        [row] = await engine.store.workers()
        await engine.store.beat(Beat(row.id, (), 60_000_000, 60_000_000, figures=figures.encode()))
        return (
            await asyncio.to_thread(terminal, "top", "--once"),
            await asyncio.to_thread(terminal, "workers"),
        )

    at_a_glance, workers = working(enlisted)
    assert at_a_glance.has("held 1,900 of 2,000") and at_a_glance.has("alive 1,900 100 ")
    assert workers.has(" 1,900 2,000 ")
