"""Processes that block their worker's event loop: each takes two workers, then one of its own, and is parked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.runtime.os_process import EXIT_HUNG
from tests.kill import hangman
from tests.kill.hangman import (
    HANGING,
    blocked_by_a_lock,
    blocked_by_a_step,
    blocked_by_a_task_of_a_step,
    blocked_in_c,
    blocked_in_c_once,
    suspicious,
)
from tests.kill.harness import LIMIT, Harness, laws_hold, points, said
from tests.kill.victim import Victim, victim
from tests.kill.workload import gate, held

PACE = {"lease_seconds": 2.0, "beat_seconds": 0.4, "exit_when_hung": True}
WAYS = {
    "a step": blocked_by_a_step,
    "a task of a step": blocked_by_a_task_of_a_step,
    "a lock": blocked_by_a_lock,
}


async def broken(client: Engine, id: str) -> Process:
    async with asyncio.timeout(LIMIT):
        while (row := await client.row(id)).status is Status.RUNNING:
            await asyncio.sleep(0.05)
    return row


async def hands(client: Engine, ids: Sequence[str]) -> None:
    """Wait until all of them are in somebody's hands."""
    async with asyncio.timeout(LIMIT):
        while not all([(await client.row(id)).owner for id in ids]):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("way", points(list(WAYS), "a task of a step", "a lock"))
async def test_what_blocks_the_loop_for_ever_takes_two_workers_and_is_parked_with_its_stack(
    harness: Harness, way: str
) -> None:
    async with Engine(harness.url, migrate=True) as client:
        workers = [await harness.start_worker(options=PACE, modules=[hangman.__name__]) for _ in range(3)]
        for child in workers:
            await said(child, "ready")
        neighbours = [(await client.start(held, n)).id for n in range(12)]
        await hands(client, neighbours)
        handle = await client.start(WAYS[way])
        row = await broken(client, handle.id)
        gate().touch()
        ended = [child.returncode for child in workers if child.returncode is not None]
        assert ended == [EXIT_HUNG, EXIT_HUNG], "never a third one"
        failure = Failure.shown(row.error or b"")
        assert (row.status, failure.type) == (Status.BROKEN, "Hung")
        assert HANGING[way] in failure.trace
        assert harness.ledger.read_text().count("block ") >= 3, "twice with neighbours, once alone"
        for id in neighbours:
            await client.process(id).result(timeout=LIMIT)
        rows = await laws_hold(client)
        assert {one.deaths for one in rows if one.kind == "held"} == {0}, "who was in the same hand is no suspect"
        told = [json.decode(event.payload or b"{}") for event in await revivals(client, row)]
        stacks = [one["hung"]["stack"] for one in told if "hung" in one]  # of one the lease may lapse first
        assert len(told) == 3 and len(stacks) >= 2 and all(HANGING[way] in stack for stack in stacks)


async def revivals(client: Engine, row: Process) -> list[Any]:
    return await client.store.history(row.id, row.run, types=[EventType.REVIVED])


async def program(harness: Harness, told: Path, *words: str, lease: int = 3) -> Victim:
    """Start `perdure worker` with these words; what it tells is in the file ``told``."""
    words = ("worker", hangman.__name__, "--lease", str(lease), "--beat", "0.5", "--url", harness.url, *words)
    with open(told, "wb") as log:
        child = await victim("perdure", *words, output=log.fileno(), errors=log.fileno())
    harness.workers.append(child)
    return child


async def test_a_worker_pool_replaces_workers_whose_interpreter_is_kept_by_c_code_and_what_keeps_it_is_parked(
    harness: Harness, tmp_path: Path
) -> None:
    """No thread of such a member runs: its parent ends it, and so does that of a quarantine worker."""
    pool = await program(harness, tmp_path / "crew.log", "--workers", "2")
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(blocked_in_c)
        row = await broken(client, handle.id)
        failure = Failure.shown(row.error or b"")
        assert failure.type == "Poison"
        assert "died 2 times with neighbours and 3 times while it ran alone" in failure.message
        pool.send_signal(signal.SIGTERM)
        assert await pool.wait() == 0
    told = (tmp_path / "crew.log").read_text()
    # On a busy machine others are stuck too: here three seconds without a sign are enough.
    assert told.count("is stuck") >= 5
    assert told.count("was killed by SIGKILL; another takes its place") >= 2


async def test_a_worker_without_a_parent_whose_interpreter_is_kept_by_c_code_ends_itself_and_is_taken_over(
    harness: Harness, tmp_path: Path
) -> None:
    """No thread of Python runs in it: a timer of C ends it, before its silence could be taken for anything else."""
    logs = [tmp_path / "one.log", tmp_path / "other.log"]
    # The longer the lease is, the later it lapses behind the end that the timer brings: a busy machine may be late.
    workers = [await program(harness, log, lease=6) for log in logs]
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(blocked_in_c_once)
        await client.process(handle.id).result(timeout=LIMIT)
        ends = [asyncio.create_task(worker.wait()) for worker in workers]
        async with asyncio.timeout(LIMIT):
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        [(log, code)] = [(log, end.result()) for log, end in zip(logs, ends, strict=True) if end.done()]
        assert code == 1
        assert "Timeout (" in log.read_text() and "in keep_the_interpreter_once" in log.read_text()
        row = await client.row(handle.id)
        assert [json.decode(event.payload or b"{}")["deaths"] for event in await revivals(client, row)] == [1]
        [left] = [worker for worker in workers if worker.returncode is None]
        left.send_signal(signal.SIGTERM)
        assert await left.wait() == 0, "its fuse was taken away when it was told to stop"


async def test_a_quarantine_worker_hands_its_suspect_back_when_its_parent_is_killed(harness: Harness) -> None:
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(suspicious)
        options = {**PACE, "stop_seconds": 0.1}
        for _ in range(2):
            child = await harness.start_worker(options=options, modules=[hangman.__name__])
            await child.wait()
        # Neither of these two hangs, but on a machine that stands still for a moment a short lease would end.
        calm = {**options, "lease_seconds": 20.0, "stop_seconds": 1.0}
        parent = await harness.start_worker(options=calm, modules=[hangman.__name__])
        async with asyncio.timeout(LIMIT):
            while harness.ledger.read_text().count("lasting") < 3:
                await asyncio.sleep(0.05)
        alone = int(harness.ledger.read_text().splitlines()[-1].split()[2])
        parent.kill()
        async with asyncio.timeout(LIMIT):
            while alive(alone):
                await asyncio.sleep(0.05)
        async with asyncio.timeout(LIMIT):  # a second one, that was not told of its end yet, may have it for a moment
            while (row := await client.row(handle.id)).owner is not None:
                await asyncio.sleep(0.05)
        assert (row.status, row.alone_deaths) == (Status.RUNNING, 0), "it was no death"


def alive(pid: int) -> bool:
    """Whether an OS process that is no child of ours still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
