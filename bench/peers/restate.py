"""The driver of Restate: its own server, a service endpoint in an OS process apart, and an HTTP client."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from bench import payload
from bench.driver import Stopwatch, Task, gaps, lags, main, note_effect, ready, spread

CLIENTS = 128
START_SECONDS = 60.0
service = restate.Service("bench")


@service.handler()
async def order(ctx: restate.Context, asked: dict[str, Any]) -> dict[str, Any]:
    """Run the steps one after another; a long run answers the moments of its steps too."""
    moments: list[float] = []

    async def effect() -> dict[str, Any]:
        moments.append(time.perf_counter())
        return payload.made(i)

    for i in range(asked["steps"]):
        await ctx.run_typed(f"effect-{i}", effect)
    answer = payload.outcome(asked["steps"])
    return answer | {"moments": moments} if asked["steps"] > 10 else answer


@service.handler()
async def sleeper(ctx: restate.Context, due: float) -> float:
    """Sleep until the due time, then run one step."""
    await ctx.sleep(timedelta(seconds=max(0.0, due - time.time())))

    async def wake_time() -> float:
        return time.time()

    return await ctx.run_typed("wake", wake_time)


@service.handler()
async def slow_order(ctx: restate.Context, asked: dict[str, Any]) -> int:
    """Run the slow steps one after another."""
    for i in range(asked["steps"]):

        async def effect(i: int = i) -> int:
            note_effect(asked["path"], asked["process"], i)
            await asyncio.sleep(asked["pause"])
            return i

        await ctx.run_typed(f"effect-{i}", effect)
    return int(asked["steps"])


meter = restate.VirtualObject("meter")


@meter.handler()
async def add(ctx: restate.ObjectContext, amount: int) -> int:
    """Count, and tell the sum."""
    count = (await ctx.get("count") or 0) + amount
    ctx.set("count", count)
    return count


class Ports:
    """The loopback ports of one run, kept in a file so that every role of the run finds them."""

    def __init__(self, task: Task) -> None:
        self.path = os.path.join(task.scratch, "ports")
        if not os.path.exists(self.path):
            Path(self.path).write_text(" ".join(str(port) for port in _free_ports(4)))
        self.ingress, self.admin, self.node, self.endpoint = map(int, Path(self.path).read_text().split())


def _free_ports(n: int) -> list[int]:
    probes = [socket.socket() for _ in range(n)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def start_server(task: Task) -> subprocess.Popen[bytes]:
    """Start the server with default settings, bound to loopback, its data in the scratch folder."""
    ports = Ports(task)
    places = glob.glob(
        os.path.join(os.environ["BENCH_PEER_HOME"], "server/node_modules/@restatedev/*/bin/restate-server")
    )
    config = os.path.join(task.scratch, "restate.toml")
    Path(config).write_text(
        f'bind-address = "127.0.0.1:{ports.node}"\nadvertised-address = "http://127.0.0.1:{ports.node}/"\n'
        f'listen-mode = "tcp"\ndisable-telemetry = true\n'
        f'[ingress]\nbind-address = "127.0.0.1:{ports.ingress}"\n'
        f'[admin]\nbind-address = "127.0.0.1:{ports.admin}"\n'
    )
    return subprocess.Popen(
        [places[0], "--config-file", config, "--base-dir", os.path.join(task.scratch, "restate-data")],
        stdout=open(os.path.join(task.scratch, "restate.log"), "ab"),
        stderr=subprocess.STDOUT,
        cwd=task.scratch,
    )


async def serve_endpoint(task: Task) -> None:
    """Serve the handlers; several workers may share the port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", Ports(task).endpoint))
    config = Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.h2_max_concurrent_streams = 2147483647
    config.keep_alive_max_requests = 2147483647
    config.keep_alive_timeout = 2147483647
    asyncio.get_running_loop().call_later(0.5, ready)
    await serve(restate.app(services=[service, meter]), config)  # type: ignore[arg-type]


def start_endpoint(task: Task) -> subprocess.Popen[bytes]:
    """Start the endpoint as an OS process of its own."""
    import json

    asked = json.dumps({**vars(task), "parent": os.getpid()})
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peers.restate", "worker", asked],
        stdout=subprocess.DEVNULL,
        stderr=open(os.path.join(task.scratch, "endpoint.log"), "ab"),
    )


async def register(task: Task) -> None:
    """Wait for the server and tell it where the endpoint is."""
    ports = Ports(task)
    end = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(
                    f"http://127.0.0.1:{ports.admin}/deployments",
                    json={"uri": f"http://127.0.0.1:{ports.endpoint}", "force": True},
                ) as answer:
                    if answer.status < 300:
                        return
                    problem = await answer.text()
            except aiohttp.ClientError as error:
                problem = str(error)
            if time.monotonic() > end:
                raise SystemExit(f"Restate did not start: {problem}")
            await asyncio.sleep(0.2)


def client(clients: int = CLIENTS) -> aiohttp.ClientSession:
    """A lean HTTP client."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=clients), timeout=aiohttp.ClientTimeout(total=600)
    )


async def call(session: aiohttp.ClientSession, task: Task, handler: str, argument: Any, send: bool = False) -> Any:
    """Call a handler through the ingress, or only send."""
    address = f"http://127.0.0.1:{Ports(task).ingress}/bench/{handler}" + ("/send" if send else "")
    async with session.post(address, json=argument) as answer:
        if answer.status >= 300:
            raise RuntimeError(await answer.text())
        return await answer.json()


async def flood(session: aiohttp.ClientSession, task: Task, n: int, steps: int) -> None:
    """Call n times with 128 clients, each waiting for its answer."""
    address, left = f"http://127.0.0.1:{Ports(task).ingress}/bench/order", iter(range(n))

    async def one() -> None:
        for _ in left:
            async with session.post(address, json=payload.asked(steps)) as answer:
                await answer.read()
                if answer.status >= 300:
                    raise RuntimeError(f"Restate answered {answer.status}")

    await asyncio.gather(*(one() for _ in range(CLIENTS)))


async def alone(task: Task) -> None:
    """Start server and endpoint for a role that has no other worker."""
    start_server(task)
    start_endpoint(task)
    await register(task)


async def throughput(task: Task) -> dict[str, Any]:
    """W1 and W2 with 128 clients."""
    await alone(task)
    async with client() as session:
        await flood(session, task, 1_000, 1)
        watch = Stopwatch()
        await flood(session, task, task.n, task.steps)
        return watch.rate(task.n * (task.steps if task.steps > 1 else 1), "steps" if task.steps > 1 else "processes")


async def step_latency(task: Task) -> dict[str, Any]:
    """W3: one invocation of many steps on an idle system."""
    await alone(task)
    async with client() as session:
        await call(session, task, "order", payload.asked(20))
        return spread(gaps((await call(session, task, "order", payload.asked(task.n)))["moments"]))


async def measure_latency(session: aiohttp.ClientSession, task: Task, n: int) -> list[float]:
    """Call to answer, one after another."""
    times: list[float] = []
    for _ in range(n + 10):
        begun = time.perf_counter()
        await call(session, task, "order", payload.asked(1))
        times.append(time.perf_counter() - begun)
    return times[10:]


async def result_latency(task: Task) -> dict[str, Any]:
    """W4: call to answer, one after another on an idle system."""
    await alone(task)
    async with client() as session:
        return spread(await measure_latency(session, task, task.n))


async def timers(task: Task) -> dict[str, Any]:
    """W5: many sleepers due at one instant."""
    await alone(task)
    async with client(task.n + 10) as session:
        await call(session, task, "order", payload.asked(1))
        begun = time.time()
        due = begun + task.lead
        wakes = await asyncio.gather(*(call(session, task, "sleeper", due) for _ in range(task.n)))
        return lags(due, wakes, 0.0, time.time())


async def prepare(task: Task) -> dict[str, Any]:
    """Start the server for roles that follow; the contest ends it."""
    return {"server": start_server(task).pid}


async def submit(task: Task) -> dict[str, Any]:
    """W7: hand in the slow orders and leave."""
    await register(task)
    async with client() as session:
        begun = time.monotonic()
        await asyncio.gather(
            *(
                call(
                    session,
                    task,
                    "slow_order",
                    {"path": task.effects, "process": process, "steps": task.steps, "pause": task.pause},
                    send=True,
                )
                for process in range(task.n)
            )
        )
        return {"submit_s": time.monotonic() - begun}


async def outcome(task: Task) -> dict[str, Any]:
    """How many invocations have a recorded result."""
    wanted = "status = 'completed' AND target_handler_name = 'slow_order'"
    query = {"query": f"SELECT count(*) AS n FROM sys_invocation WHERE {wanted}"}
    async with client() as session:
        address = f"http://127.0.0.1:{Ports(task).admin}/query"
        async with session.post(address, json=query, headers={"accept": "application/json"}) as answer:
            found = re.search(r'"n"\s*:\s*"?(\d+)', await answer.text())
    return {"finished": int(found.group(1)) if found else -1}


async def other_worker(task: Task) -> dict[str, Any]:
    """W10: called by a client, run by an endpoint elsewhere (as in W1 and W4)."""
    await register(task)
    async with client() as session:
        await flood(session, task, 200, 1)
        watch = Stopwatch()
        await flood(session, task, task.n, 1)
        return watch.rate(task.n, "processes") | spread(await measure_latency(session, task, 100))


async def add_to(session: aiohttp.ClientSession, task: Task, key: str) -> None:
    """Call the virtual object of that key."""
    address = f"http://127.0.0.1:{Ports(task).ingress}/meter/{key}/add"
    async with session.post(address, json=1) as answer:
        await answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"Restate answered {answer.status}")


async def add_often(session: aiohttp.ClientSession, task: Task, n: int, objects: int) -> None:
    """Call so many virtual objects by turns, with 128 clients."""
    left = iter(range(n))

    async def one() -> None:
        for i in left:
            await add_to(session, task, str(i % objects))

    await asyncio.gather(*(one() for _ in range(CLIENTS)))


async def virtual_objects(task: Task) -> dict[str, Any]:
    """W20: calls to 1,000 virtual objects, to one, and one at a time."""
    await alone(task)
    async with client() as session:
        objects = min(1_000, task.n)
        await add_often(session, task, objects, objects)
        watch = Stopwatch()
        await add_often(session, task, task.n, objects)
        answer = watch.rate(task.n, "calls")
        watch = Stopwatch()
        await add_often(session, task, task.n // 4, 1)
        answer["one_per_s"] = watch.rate(task.n // 4, "calls")["calls_per_s"]
        times: list[float] = []
        for _ in range(200):
            begun = time.perf_counter()
            await add_to(session, task, "idle")
            times.append(time.perf_counter() - begun)
        return answer | spread(times)


if __name__ == "__main__":
    main(
        {
            "w1": throughput,
            "w2": throughput,
            "w3": step_latency,
            "w4": result_latency,
            "w5": timers,
            "worker": serve_endpoint,
            "prepare": prepare,
            "submit": submit,
            "outcome": outcome,
            "w10": other_worker,
            "w20": virtual_objects,
        }
    )
