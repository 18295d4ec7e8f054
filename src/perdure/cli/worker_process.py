"""A worker process: one worker in one OS process, alone or in a pool; it ends when told to, or when its parent dies.

Nothing here may import what only people need: a worker is small.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure import limits, logs
from perdure.authoring.registry import Registry
from perdure.cli import exit_code
from perdure.cli.exit_code import CANNOT_START, WORN_OUT
from perdure.cli.plain_output import complain, show_line
from perdure.engine import Engine
from perdure.errors import PerdureError, StoreUnavailable
from perdure.kernel.names import LIBRARY, id_text
from perdure.monitoring.access import access_of_environment
from perdure.monitoring.http import MonitoringServer
from perdure.monitoring.pages import pages
from perdure.runtime import os_process
from perdure.runtime.options import WorkerOptions
from perdure.runtime.os_process import AT_ONCE, Fuse, last_resort, patience, signs, watch_parent
from perdure.runtime.watchdog import aside
from perdure.store.url import without_password

RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)

log = logs.logger("worker")


class ProcessOptions(msgspec.Struct, frozen=True):
    """What a worker is told: the modules it hosts, its pace in seconds, how it speaks, and the version that it is.

    ``metrics`` is the port of its monitoring server, if it has one: the worker of slot n of a pool has the n-th after
    it.
    """

    modules: list[str]
    lease: float = limits.LEASE_SECONDS
    beat: float = limits.BEAT_SECONDS
    in_flight: int = limits.IN_FLIGHT_PROCESSES
    cached: int = limits.CACHED_PROCESSES
    stop: float = limits.STOP_SECONDS
    cells: int = limits.STEP_CELLS
    migrate: bool = True
    json: bool = False
    workflows: bool = True
    queues: dict[str, int | None] | None = None
    labels: list[str] = []
    version: str = ""
    observe: bool = False
    metrics: int | None = None
    metrics_host: str = "127.0.0.1"
    traces: bool = False

    @property
    def patience(self) -> float:
        """Seconds for which its interpreter may stand still: then its parent ends it, or its fuse if it has none."""
        return patience(self.lease, self.beat)

    @property
    def worker_options(self) -> WorkerOptions:
        """The same as the engine takes them; raises DefinitionError on nonsense."""
        return WorkerOptions(
            self.lease, self.beat, self.in_flight, self.stop, cells=self.cells, exit_when_hung=True, cached=self.cached
        )


class Stopping:
    """The requests to stop: the first asks for a graceful stop, the second for one at once, the third kills.

    Code of users may keep the OS process from its end: then the second one, or the end of the worker, kills a little
    later.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._over: int | None = None
        self.gracefully = asyncio.Event()
        self.at_once = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(one, self.ask)

    def ask(self) -> None:
        """Stop, more urgently each time."""
        self.asked += 1
        self.gracefully.set()
        if self._over is not None:
            os._exit(self._over)
        if self.asked == 2:
            self.at_once.set()
            self._end_soon(AT_ONCE)
        elif self.asked > 2:
            os._exit(AT_ONCE)

    def over(self, code: int) -> None:
        """The worker has stopped and told of it: nothing is lost if the OS process is ended with that code."""
        self._over = code
        self._end_soon(code)

    def _end_soon(self, code: int) -> None:
        aside(partial(last_resort, limits.END_GRACE_SECONDS, code), "perdure last resort")


def serve(options: ProcessOptions, url: str, lifeline: int | None = None) -> int:
    """Be a worker until told to stop; the answer is the exit code."""
    logs.speak()
    registry = Registry()
    try:
        for module in options.modules:
            registry.load(module)
        registry.serve_only(options.queues, options.labels)
        if not options.workflows:
            registry.kinds.clear()
        return os_process.run(_work(options, url, registry, lifeline), _loop_factory())
    except PerdureError as error:
        complain(str(error))
        code = exit_code.of(error)
        return CANNOT_START if lifeline is not None and code == exit_code.FAILED else code


async def _work(options: ProcessOptions, url: str, registry: Registry, lifeline: int | None) -> int:
    stopping = Stopping()
    if lifeline is not None:
        watch_parent(lifeline, stopping.ask, options.stop + limits.END_GRACE_SECONDS)
    collected = _registry() if options.metrics is not None else None
    engine = await _opened(options, url, registry, stopping, collected)
    if engine is None:
        return 0
    assert engine.worker is not None
    server = await _monitored(engine, options, collected)
    watchdog = engine.worker.watchdog
    if lifeline is not None:
        watchdog.sign_by(signs(lifeline))
    else:  # nobody else would end it if C code kept the interpreter
        fuse = Fuse(options.patience)
        watchdog.sign_by(fuse.put_off, fuse.take_away)
    _tell_start(engine, options, url, cores=1 if lifeline is not None else _cores())
    worn_out = await _until_stopped(engine, stopping)
    closing = asyncio.create_task(engine.close())
    hurrying = asyncio.create_task(stopping.at_once.wait())
    await asyncio.wait([closing, hurrying], return_when=asyncio.FIRST_COMPLETED)
    if not closing.done():
        engine.hurry()
    hurrying.cancel()
    await closing
    if server is not None:
        await server.close()
    _tell_end(engine, options)
    code = WORN_OUT if worn_out else 0
    stopping.over(code)
    return code


async def _until_stopped(engine: Engine, stopping: Stopping) -> bool:
    """Wait until the worker is told to stop, or should make room for another by itself: whether it is that."""
    assert engine.worker is not None
    worn_out = asyncio.create_task(engine.worker.worn_out.wait())
    asked = asyncio.create_task(stopping.gracefully.wait())
    await asyncio.wait([worn_out, asked], return_when=asyncio.FIRST_COMPLETED)
    worn_out.cancel()
    asked.cancel()
    return not stopping.asked


def _registry() -> Any:
    """A registry for the metrics of this worker and of its OS process; raises DefinitionError without the library."""
    from perdure.monitoring.prometheus import registry_of_program

    return registry_of_program()


async def _monitored(engine: Engine, options: ProcessOptions, collected: Any) -> MonitoringServer | None:
    """The server of the worker's metrics, if it is to have one; the engine is closed if that cannot listen."""
    if options.metrics is None:
        return None
    try:
        server = MonitoringServer(pages(lambda: engine.worker, collected), access_of_environment(options.metrics_host))
        await server.open(options.metrics_host, options.metrics)
    except PerdureError:
        await engine.close(0)
        raise
    assert engine.worker is not None
    engine.worker.parts.figures.port = server.port
    log.info("metrics at http://%s:%d/metrics, with /health and /ready", options.metrics_host, server.port)
    return server


async def _opened(
    options: ProcessOptions, url: str, registry: Registry, stopping: Stopping, collected: Any
) -> Engine | None:
    """The engine at work; while the store cannot be reached it tries again, until told to stop."""
    failures = 0
    while not stopping.asked:
        engine = Engine(
            url, work=True, registry=registry, options=options.worker_options, migrate=options.migrate,
            recovery="observe" if options.observe else "on", metrics=collected, traces=options.traces or None,
        )  # fmt: skip
        try:
            return await engine.__aenter__()
        except StoreUnavailable as error:
            wait = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
            failures += 1
            log.warning("%s Trying again every few seconds.", error) if failures == 1 else None
            try:
                async with asyncio.timeout(wait):
                    await stopping.gracefully.wait()
            except TimeoutError:
                pass
    return None


def _cores() -> int:
    """How many processors this OS process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tell_start(engine: Engine, options: ProcessOptions, url: str, cores: int) -> None:
    """Log what this worker is; one that leaves ``cores`` unused says how to use them."""
    assert engine.worker is not None
    kinds = sorted(kind for kind in engine.registry.kinds if not kind.startswith(LIBRARY))
    queues = sorted(work.queue for work in engine.registry.queues.values())
    hosts = ", ".join(kinds) or "no workflow"
    serves = f", serves queue {', '.join(queues)}" if queues else ""
    database = without_password(url)
    more = f"; it uses one of {cores} cores: --workers {cores} uses all" if cores > 1 else ""
    told = hosts, serves, database, options.version, more
    log.info("worker %d hosts %s%s; database %s; Perdure %s%s", os.getpid(), *told)
    if options.json:
        worker = id_text(engine.worker.incarnation.id)
        served: dict[str, Any] = {"kinds": kinds, "queues": queues, "database": database, "version": options.version}
        port = engine.worker.parts.figures.port
        if port:
            served["metrics"] = port
        show_line({"event": "started", "pid": os.getpid(), "worker": worker, **served})


def _tell_end(engine: Engine, options: ProcessOptions) -> None:
    counters = engine.metrics()
    told = ("completed", "failed", "cancelled", "broken")
    figures = [f"{counters[name]:,.0f} {name}" for name in told if counters.get(name)]
    log.info("worker %d has stopped: %s", os.getpid(), ", ".join(figures) or "no process ended here")
    if options.json:
        show_line({"event": "stopped", "pid": os.getpid(), "counters": counters})


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's event loop if it is installed, else the one of asyncio."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def command(options: ProcessOptions, lifeline: int | None = None) -> list[str]:
    """The command line of a worker process: this Python, the options, and its end of the line to a parent, if any."""
    options_text = msgspec.json.encode(options).decode()
    return [
        sys.executable,
        "-P",
        "-m",
        "perdure.cli.worker_process",
        options_text,
        *([] if lifeline is None else [str(lifeline)]),
    ]


def environment(url: str) -> dict[str, str]:
    """Our environment with the store's URL, which is never an argument: it may hold a password."""
    return {**os.environ, "PERDURE_URL": url}


def main() -> None:
    """Read the command line that :func:`command` wrote, and serve."""
    sys.path.append(os.getcwd())  # last, not first as `python -m` does: a file there must not stand in for a library
    options = msgspec.json.decode(sys.argv[1], type=ProcessOptions)
    sys.exit(serve(options, os.environ["PERDURE_URL"], int(sys.argv[2]) if len(sys.argv) > 2 else None))


if __name__ == "__main__":
    main()
