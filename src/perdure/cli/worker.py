"""Running: the commands that run workers, create or migrate the database, and run the demonstration."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure import limits, logs
from perdure.cli import output
from perdure.cli.options import DEFAULT_URL, Json, Url, connected
from perdure.cli.pool import WorkerPool
from perdure.cli.version import version
from perdure.cli.worker_process import ProcessOptions, command, environment
from perdure.errors import DefinitionError, InvalidInput
from perdure.monitoring.access import access_of_environment

SHOP = "examples.shop.demo"


def worker(
    modules: Annotated[list[str], Parameter(name="module", negative="", consume_multiple=True)],
    *,
    workers: int = 1,
    lease: float = limits.LEASE_SECONDS,
    beat: float = limits.BEAT_SECONDS,
    in_flight: int = limits.IN_FLIGHT_PROCESSES,
    cached: int = limits.CACHED_PROCESSES,
    stop: float = limits.STOP_SECONDS,
    cells: int = limits.STEP_CELLS,
    migrate: bool = True,
    workflows: bool = True,
    queues: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    labels: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    observe: Annotated[bool, Parameter(negative="")] = False,
    metrics: int | None = None,
    metrics_host: str = "127.0.0.1",
    traces: Annotated[bool, Parameter(negative="")] = False,
    log_level: Annotated[logs.Level, Parameter(env_var=logs.LEVEL)] = "info",
    log_format: Annotated[logs.Format, Parameter(env_var=logs.FORMAT)] = "text",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Run workers until Ctrl-C: they run workflows and steps.

    They also find processes that are stuck or that a dead worker held. The
    first Ctrl-C or SIGTERM stops them gracefully, the second one at once.

    Parameters
    ----------
    modules
        The code to serve: shop, shop.orders, shop:order or ./shop.py.
    workers
        How many OS processes. With more than one, a parent replaces those that die.
    lease
        Seconds after which another worker takes over what a silent one held.
    beat
        Seconds between two signs of life; at most half a lease.
    in_flight
        How many processes one worker holds at once.
    cached
        How many processes that only wait stay in memory, so that they wake without a replay.
    stop
        Seconds that running steps get to finish when the worker stops.
    cells
        How many hard steps run at once, each in an OS process of its own.
    migrate
        Create or migrate the database first.
    workflows
        Serve the workflows; with --no-workflows only the queues are served.
    queues
        The queues to serve; by default those of the modules' steps. bank=5 runs five at once.
    labels
        Names of this worker, for tasks that ask for a particular one.
    observe
        Pause automatic recovery if no other worker lives, and only tell what it would recover.
    metrics
        Serve /metrics, /health and /ready at this port; a pool takes one port for each worker, from this one on.
    metrics_host
        The address at which they are served: by default this machine alone can ask. Another one needs a token in
        $PERDURE_METRICS_TOKEN.
    traces
        Give spans to the TracerProvider of OpenTelemetry that the modules set.
    log_level
        Log this and everything more serious, to the error output.
    log_format
        One line of text for each event, or one JSON object with fields for the process and the step.
    """
    served = None if queues is None else dict(map(_queue, queues))
    options = ProcessOptions(
        modules, lease, beat, in_flight, cached, stop, cells, migrate, json, workflows, served, labels or [], version(),
        observe, metrics, metrics_host, traces,
    )  # fmt: skip
    _check(options, workers)
    os.environ |= {logs.LEVEL: log_level, logs.FORMAT: log_format}
    if workers == 1:
        words = command(options)
        os.execve(words[0], words, environment(url))  # it replaces this program, without what only a terminal needs
    logs.speak()
    return asyncio.run(WorkerPool(options, url, workers).run())


def _check(options: ProcessOptions, workers: int) -> None:
    """Refuse what cannot work before any worker is started; raises InvalidInput."""
    metrics = options.metrics
    if workers < 1:
        raise InvalidInput(f"--workers {workers} would do nothing; give 1 or more")
    if metrics is not None and not 0 <= metrics <= 65_536 - workers:
        raise InvalidInput(f"--metrics {metrics} is no port for {workers} workers; give a number like 9464")
    try:
        options.worker_options  # noqa: B018 (it checks)
        if metrics is not None:
            access_of_environment(options.metrics_host)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None


def _queue(text: str) -> tuple[str, int | None]:
    """A queue, and how many of its tasks one worker runs at once."""
    name, equals, most = text.rpartition("=")
    if not equals:
        return text, None
    if not most.isdecimal():
        raise InvalidInput(f"--queues {text!r:.80}: {most!r:.20} is not a whole number; write bank=5, or just bank")
    return name, int(most)


async def migrate(
    *, roles: Annotated[bool, Parameter(negative="")] = False, json: Json = False, url: Url = DEFAULT_URL
) -> None:
    """Create the database or bring it up to date.

    It is safe to run this again, and several times at once.

    Parameters
    ----------
    roles
        Also create PostgreSQL's roles for logins with fewer rights, or bring them up to date.
    """
    async with connected(url, create=True) as engine:
        now = await engine.store.now()
        made = await engine.store.backend.make_roles() if roles else []
    if json:
        output.show_json({"ready": True, "now": now, **({"roles": made} if roles else {})})
    else:
        print("\n".join(["the database is ready", *(f"role {name}" for name in made)]))


def demo(
    *,
    orders: int = 1000,
    keep: Annotated[bool, Parameter(negative="")] = False,
    url: Annotated[str | None, Parameter(name="--url", env_var="PERDURE_URL")] = None,
) -> int:
    """Watch 1,000 orders survive a killed and a frozen worker.

    Three workers run the orders of a shop; one is killed, one is stopped for a
    while; then the books are checked.

    Parameters
    ----------
    orders
        How many orders of the CSV file to submit.
    keep
        Keep the database files, and say where they are.
    url
        PostgreSQL instead of a SQLite file in a temporary folder.
    """
    for place in (os.getcwd(), str(Path(__file__).parents[3]), str(Path(__file__).parent / "shown")):
        if (Path(place) / "examples" / "shop" / "demo.py").is_file():
            sys.path.append(place)  # not first: a file there must not stand in for a library
            break
    else:
        raise InvalidInput("the demonstration is not installed; run `make demo` in a clone of Perdure's source")
    shop = importlib.import_module(SHOP)
    code: int = shop.run(url=url or None, orders=orders, keep=keep)
    return code
