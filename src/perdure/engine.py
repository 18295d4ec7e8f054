"""The engine: a client, and with ``work=True`` a worker too, on one store. Only this file puts all parts together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from perdure import settings
from perdure.authoring import isolation
from perdure.authoring.library import host_library
from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.client.client import Client
from perdure.client.handle import Handle
from perdure.clock import SECOND, Computer, microseconds
from perdure.errors import DefinitionError, PerdureError
from perdure.kernel.breaker import BreakerSettings
from perdure.kernel.kind import left_behind
from perdure.kernel.policy import Policies
from perdure.kernel.queue import Queue
from perdure.logs import logger
from perdure.monitoring.monitor import Monitor
from perdure.runtime.alerts import OnAlert, checked_on_alert
from perdure.runtime.options import WorkerOptions
from perdure.runtime.own_worker import OwnWorker
from perdure.runtime.store_time import StoreTime
from perdure.store.base import Store
from perdure.store.notifications import Notification
from perdure.store.url import sealed, store_for

if TYPE_CHECKING:
    from perdure.client.alerting.rule import AlertRule
    from perdure.client.in_transaction import Awaited, Blocking, BlockingInTransaction, InTransaction
    from perdure.client.retention import Retention
    from perdure.kernel.retention import RetentionRule
    from perdure.rehearsal.report import Rehearsal
    from perdure.retention.remover import Remover
    from perdure.runtime.worker import Worker
    from perdure.store.sealed.codec import Codec
    from perdure.store.sealed.offload import Offload


class Engine(Client):
    """Opens a store and, with ``work=True``, works on its processes.

    ::

        async with Engine(work=True) as engine:
            handle = await engine.start(order.options(key="order/A-17"), "A-17", 1299)
            print(await handle.result())

    Without ``work`` it is a client only: it starts, reads and commands processes, and runs none of their code. ``url``
    is the database (default: what PERDURE_URL names, or else ``sqlite:///perdure.db``, as on the command line).
    ``workflows`` are those that the worker hosts (default: all that this program has defined, and each that is started
    here), ``queues`` those whose tasks it runs (default: the queues of all steps in the hosted modules; a mapping says
    how many tasks of each queue run here at once), ``labels`` the worker's labels. A worker creates and migrates the
    database, a client refuses one that is not ready, unless ``migrate`` says otherwise. ``codecs`` and ``offload`` say
    how payloads are compressed, encrypted and kept outside the database (default: those of the module that PERDURE_SEAL
    names). ``on_alert`` is called by the worker with each :class:`Alert`: what only a person can mend; ``alerts`` are
    rules that alert, which the worker adds to the database.
    ``recovery="observe"`` pauses automatic recovery if this is the first worker after all others have gone: it tells
    what it would recover, until a person resumes it.
    ``metrics`` is a registry of prometheus-client that collects the engine's metrics, ``traces`` a TracerProvider of
    OpenTelemetry's SDK to which it gives its spans (True: the global one); without them nothing is measured or traced.
    ``retention`` are rules by which processes are removed long after their end, and archived before that; those of
    PERDURE_RETENTION and ``perdure.toml`` come first. Give all workers the same.
    ``registry``, ``machine``, ``store`` and ``alone`` are for Perdure's own programs and tests.

    Raises DefinitionError or InvalidInput (InvalidUrl, InvalidKey) for wrong arguments; when it is entered, StoreError
    (StoreUnavailable, StoreTooNew, StoreReadOnly, …).
    """

    _stopping: asyncio.Event | None = None
    _draining: Worker | None = None
    _closing: asyncio.Task[None] | None = None

    def __init__(
        self,
        url: str | None = None,
        *,
        work: bool = False,
        workflows: Iterable[Workflow[Any, Any]] | None = None,
        queues: Iterable[str] | Mapping[str, int | None] | None = None,
        labels: Iterable[str] = (),
        options: WorkerOptions | None = None,
        migrate: bool | None = None,
        registry: Registry | None = None,
        machine: Computer | None = None,
        store: Store | None = None,
        codecs: Sequence[Codec] | None = None,
        offload: Offload | None = None,
        alone: bool = False,
        on_alert: OnAlert | None = None,
        alerts: Iterable[AlertRule] = (),
        recovery: Literal["on", "observe"] = "on",
        metrics: Any = None,
        traces: Any = None,
        retention: Collection[RetentionRule | Mapping[str, Any]] = (),
    ) -> None:
        self._on_alert, self._alert_rules = checked_on_alert(on_alert), tuple(alerts)
        self.machine, self.options = machine or Computer(), options or WorkerOptions()
        self._monitor = Monitor(metrics, traces)
        self.telemetry = self._monitor.telemetry
        registry = _hosted(registry, workflows, work=work)
        if queues is not None or labels:
            registry.serve_only(queues, labels)
        if codecs is None and offload is None:
            codecs, offload = settings.sealing()
        elif work:
            _warn_of_quarantine("codecs were" if codecs else "an offload was")
        store = sealed(
            store or store_for(settings.database() if url is None else url, self.machine), codecs or (), offload
        )
        self._time = StoreTime(self.machine)
        self.committer = self._monitor.committer(store, self._time, self.machine, self.telemetry)
        super().__init__(store, self.committer, registry, self.machine, OwnWorker(self))
        self.tracer, self.declares, self._work = self._monitor.traces, work, work
        self.worker: Worker | None = None
        self._alone, self._migrate = alone, work if migrate is None else migrate
        self._observes = _observes(recovery)
        self._policies = StepPolicies(settings.policies(self.options.policies) if work else Policies())
        self._breakers = settings.breakers(self.options.breakers) if work else BreakerSettings()
        self._outages = settings.outages(self.options.outages) if work else {}
        self._own_rules = retention
        self._rules = settings.worker_retention(retention, self.options.retention_seconds) if work else ()
        self._unwatch: Callable[[], None] = lambda: None

    # -- life ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the store and, with ``work=True``, start the worker; raises StoreError.

        Raises DefinitionError if the registry for its metrics collects those of another engine.
        """
        if isolation.entering:
            raise DefinitionError(
                "this program opens an engine while it is imported by the cell of a hard step. "
                'Put what it does behind `if __name__ == "__main__":`.'
            )
        self._monitor.open()
        try:
            await self.store.open(migrate=self._migrate)
        except BaseException:
            await self._monitor.close()  # this engine may be entered again, or another one made for the registry
            raise
        self._closing = None
        try:
            await self._begin_work()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully: see :meth:`close`."""
        await self.close()

    async def _begin_work(self) -> None:
        self._stopping = asyncio.Event()
        self.committer.open()
        self.parts.results.open()
        if self._work:
            self._policies.check()
            self._time.forget()
            sent = self.machine.monotonic()
            self._time.heard(await self.store.now(), sent)
            worker = self._made()
            if self._observes and not self._alone:
                await self._observe()
            await self._declare_limits()
            self.worker = worker
            await self.worker.start()
            self._monitor.follow(self.worker)
            for workflow in list(self.registry.kinds.values()):
                if workflow.schedule is not None:
                    await self.schedules.declare(workflow, workflow.schedule)
            if self._alert_rules:
                await self.alerts.declare(self._alert_rules)
                self.worker.alert_rules.begin()
        self._unwatch = self.store.watch(self._heard)

    async def _declare_limits(self) -> None:
        """Put the limits in force that workflows declare, and take those away that are in their code no more."""
        kinds = self.registry.kinds
        for workflow in list(kinds.values()):
            if workflow.limits is not None:
                await self.kinds.declare(workflow)
        if unlimited := {name for name, workflow in kinds.items() if workflow.limits is None}:
            for kind in left_behind(await self.store.records(Queue), unlimited):
                await self.kinds.declare(kinds[kind])

    def _made(self) -> Worker:
        """A worker that has not started; its code is imported here, because a client needs none of it."""
        from perdure.runtime.parts import Incarnation, WorkerParts
        from perdure.runtime.worker import Worker

        parts = WorkerParts(
            Incarnation(self.machine.new_id()), self.store, self.registry, self.committer, self._time, self.machine,
            self.telemetry, self.options, self._alone, self._policies, self, self._on_alert,
            self._breakers, settings.check_rate(self.options.check_rate), self._monitor.observers,
            self._monitor.traces, self._outages, self._remover(self._rules),
            settings.sweep_paces(self.options.sweeps), settings.missing(self.options.missing),
        )  # fmt: skip
        return Worker(parts, self.parts.results)

    def _remover(self, rules: tuple[RetentionRule, ...]) -> Remover | None:
        """What removes by these rules; None if there are none."""
        if not rules:
            return None
        from perdure.retention.remover import Remover

        return Remover(self.store, rules, microseconds(self.options.key_retention_seconds), self.machine.new_id)

    @cached_property
    def retention(self) -> Retention:
        """The verbs on rules of retention; raises DefinitionError if a rule makes no sense."""
        validation.outside_a_turn()
        from perdure.client.retention import Retention

        return Retention(self.store, self._remover(settings.retention(self._own_rules)))

    async def _observe(self) -> None:
        """Pause recovery unless a worker lives, which has begun to recover already, or may: a person resumes it."""
        now, workers = await self.store.now(), await self.store.workers()
        if any(worker.due_at is not None and worker.due_at > now and not worker.lock_free for worker in workers):
            return
        # If we die here recovery is paused, and stays so: whoever starts the next worker is told of it.
        why = "it only observes after its start; look at what it found, then resume"
        await self.recovery.pause(who=f"worker {self.machine.name()}", why=why, origin="worker")

    async def close(self, seconds: float | None = None) -> None:
        """Stop: steps in flight get ``seconds`` (default: ``options.stop_seconds``) to finish, then all is released.

        Other workers go on with what was released. A second call waits for the same end; with 0 seconds it hurries it.
        """
        self.stop_soon()
        if self._closing is None:
            self._draining = self.worker  # from now on a second call hurries it, also before the task has begun
            self._closing = asyncio.create_task(self._close(seconds), name="perdure close")
        elif seconds == 0:
            self.hurry()
        await asyncio.shield(self._closing)

    async def _close(self, seconds: float | None) -> None:
        self._unwatch()
        worker, self.worker = self.worker, None
        try:
            await self._monitor.close()
            await self.lead_no_more()
            if worker is not None:
                await worker.stop(self.options.stop_seconds if seconds is None else seconds)
        finally:
            try:
                await self.committer.close()
                await self.parts.results.close()
                if worker is not None:
                    await worker.retire()
                await self.store.close()
            finally:
                if worker is not None:
                    worker.watchdog.stop()  # last: until then its signs tell a parent that the interpreter runs

    def stop_soon(self) -> None:
        """Ask :meth:`run` to return."""
        if self._stopping is not None:
            self._stopping.set()

    def hurry(self) -> None:
        """Let a :meth:`close` under way wait no longer for steps: release everything now."""
        if self._draining is not None:
            self._draining.hurry()

    async def run(self) -> None:
        """Wait, while the worker works, until :meth:`stop_soon` or :meth:`close` is called.

        Raises PerdureError if the engine is not open.
        """
        if self._stopping is None:
            raise PerdureError("the engine is not open: use `async with Engine(...) as engine`")
        await self._stopping.wait()

    def metrics(self) -> dict[str, float]:
        """Counters and durations (seconds) since this engine was made, by the names in ``perdure.telemetry``."""
        figures = self.telemetry.snapshot()
        figures["in_hand"] = 0 if self.worker is None else self.worker.busy
        figures["clock_ahead_seconds"] = 0.0 if self.worker is None else self.worker.heartbeat.lead / SECOND
        return figures

    async def rehearse(self, where: str = "", *, kind: str | None = None, version: str | None = None) -> Rehearsal:
        """Replay stored processes against the code of this engine's workflows: which would not fit, where, and why.

        No step runs, nothing is sent, and the database is only read. ``where`` is a query; without a status in it,
        processes that have not ended are rehearsed, and never queued steps. With a ``version`` each is rehearsed with
        the code of that version, whichever it has: would it fit if it were moved there? Raises InvalidInput,
        StoreUnavailable.
        """
        validation.outside_a_turn()
        from perdure.rehearsal.rehearser import Rehearser, of_store

        rehearser = Rehearser(self.registry, self._policies, version)
        return await of_store(self.store, rehearser, where, kind=kind)

    # -- in a transaction of the caller's own --------------------------------------------------------------------

    @overload
    def within(self, connection: Blocking) -> BlockingInTransaction[Handle[Any]]: ...

    @overload
    def within(self, connection: Awaited) -> InTransaction: ...

    def within(self, connection: Any) -> Any:
        """Start and signal processes inside the caller's open transaction on ``connection``: they count if it commits.

        Returns an object with the verbs ``start`` and ``signal``. They are awaited if the connection's own calls are,
        and block otherwise. The connection is one of asyncpg, psycopg or SQLAlchemy to the store's PostgreSQL database,
        or one of sqlite3 or SQLAlchemy to its SQLite file. Raises InvalidInput if the connection is none of these, is
        to another file, or has no transaction.
        """
        validation.outside_a_turn()
        from perdure.client.in_transaction import InTransaction, blocking_in_transaction

        inside = InTransaction(self, connection)
        return blocking_in_transaction(self, connection, lambda handle: handle) if inside.blocking else inside

    # -- between client and worker -------------------------------------------------------------------------------

    def _heard(self, notification: Notification) -> None:
        worker = self.worker
        if worker is not None and (notification.some_due or notification.told):
            if notification.some_due:
                worker.hint()
            worker.look_at(() if notification.some_due else notification.told)
        if notification.some_done:
            self.parts.results.hint()
        if notification.ended:
            self.parts.results.named(notification.ended)
        if worker is not None and notification.kinds:
            worker.claimer.named(notification.kinds, notification.due)


def _observes(recovery: str) -> bool:
    """Whether this mode of recovery is to observe first; raises DefinitionError if it is none."""
    if recovery not in ("on", "observe"):
        raise DefinitionError(f'recovery={recovery!r:.100} is no mode of recovery. Give "on" or "observe".')
    return recovery == "observe"


def _hosted(registry: Registry | None, workflows: Iterable[Workflow[Any, Any]] | None, *, work: bool) -> Registry:
    """What an engine hosts: by default all that the program has defined, and in a worker the library's own too."""
    if registry is None:
        registry = Registry.of_program() if workflows is None else Registry(*workflows)
    return host_library(registry) if work else registry


def _warn_of_quarantine(what: str) -> None:
    """Warn of what only this program has been given, and what quarantine workers therefore lack."""
    if not os.environ.get(settings.SEAL):
        text = "%s given to this engine only: quarantine workers have none unless %s names their module"
        logger("store").warning(text, what, settings.SEAL)
