"""The engine of a test: client and worker on a temporary SQLite file, whose time skips while nothing runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.clock import SECOND, Duration, microseconds
from perdure.engine import Engine
from perdure.errors import InvalidInput, PerdureError
from perdure.kernel.policy import Policy
from perdure.runtime.options import WorkerOptions
from perdure.store.sealed.codec import Codec
from perdure.store.sealed.offload import Offload
from perdure.testing.fakes import Fakes, replaced
from perdure.testing.time_skipping import Skipper, SkippingMachine

AGES_SECONDS = 10 * 365 * 24 * 3600.0
"""How long leases last and results are kept: neither skipped time nor a debugger's stop ends them."""

HOLD_SECONDS = 3600.0
"""A process that waits no longer than this stays in memory; others are evicted, and replayed when they go on."""

OPTIONS = WorkerOptions(lease_seconds=AGES_SECONDS, in_flight=100_000, stop_seconds=0.0, retention_seconds=AGES_SECONDS)


class SkippingEngine(Engine):
    """An :class:`~perdure.Engine` whose clock skips while the test waits for processes and nothing runs.

    See :func:`engine`, which makes one.
    """

    machine: SkippingMachine

    def __init__(
        self,
        url: str,
        *,
        begins: datetime | None = None,
        policies: Mapping[str, Policy] | None = None,
        **settings: Any,
    ) -> None:
        if begins is not None and (not isinstance(begins, datetime) or begins.tzinfo is None):
            raise InvalidInput(
                f"begins={begins!r:.100} is no time that all agree on. Give a datetime with a time zone."
            )
        options = replace(OPTIONS, policies=policies or {})
        super().__init__(url, work=True, options=options, machine=SkippingMachine(begins), **settings)
        self._skipper: Skipper | None = None

    def now(self) -> datetime:
        """The time as the processes see it."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.machine.now() / SECOND)

    async def sleep(self, duration: Duration) -> None:
        """Let so much time pass for the processes; what is due by then has been done when this returns.

        Raises InvalidInput unless ``duration`` is a number of seconds above 0, or such a timedelta.
        """
        if self._skipper is None:
            raise PerdureError("the engine is not open: use `async with testing.engine() as engine`")
        await self._skipper.sleep(validation.duration(duration, "the time that is to pass"))

    async def _begin_work(self) -> None:
        await super()._begin_work()
        assert self.worker is not None
        self.worker.scheduler.hold = microseconds(HOLD_SECONDS)
        self._skipper = Skipper(self.machine, self.worker, self.parts.results.awaited, self.parts.answers)
        self._skipper.loop.start()

    async def _close(self, seconds: float | None) -> None:
        skipper, self._skipper = self._skipper, None
        if skipper is not None:
            await skipper.loop.stop()
        await super()._close(seconds)


@asynccontextmanager
async def engine(
    *,
    steps: Fakes | None = None,
    workflows: Iterable[Workflow[Any, Any]] | None = None,
    queues: Iterable[str] | Mapping[str, int | None] | None = None,
    labels: Iterable[str] = (),
    policies: Mapping[str, Policy] | None = None,
    codecs: Sequence[Codec] | None = None,
    offload: Offload | None = None,
    begins: datetime | None = None,
    folder: Path | None = None,
) -> AsyncIterator[SkippingEngine]:
    """An engine that works on a SQLite file of its own, for one test.

    ::

        async with testing.engine(steps={charge: lambda order, cents: "receipt"}) as engine:
            handle = await engine.start(order, "A-17", 1299)
            assert await handle.result() == "reminded"  # three days later, in a moment

    While the test waits for a process (``result``, ``call``, ``values``) or in ``engine.sleep``, and no step runs and
    nothing is due, its clock is put forward to what is due next. ``steps`` are replaced by other functions meanwhile.
    ``begins`` is the time at which the test begins (default now), and must have a time zone. The file is in ``folder``,
    or in a temporary one that is removed. ``policies`` are those of :class:`~perdure.WorkerOptions`, the other settings
    those of :class:`~perdure.Engine`. Raises DefinitionError if a fake does not fit its step, or a policy none.
    """
    with TemporaryDirectory(prefix="perdure-", ignore_cleanup_errors=True) as made, replaced(steps or {}):
        async with SkippingEngine(
            f"sqlite:///{folder or made}/perdure.db", begins=begins, workflows=workflows, queues=queues, labels=labels,
            policies=policies, codecs=codecs, offload=offload,
        ) as opened:  # fmt: skip
            yield opened
