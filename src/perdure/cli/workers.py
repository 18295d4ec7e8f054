"""The workers that are alive, at the terminal: where each runs, what it serves, how much it holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, Json, Url, Utc, connected, present
from perdure.cli.rows import Rows
from perdure.client.held import held_by, held_text
from perdure.client.view import instant
from perdure.engine import Engine
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.figures import figures_of
from perdure.kernel.names import LIBRARY, id_text
from perdure.kernel.worker import Offer, WorkerRow


class Line(msgspec.Struct, frozen=True):
    """One worker. ``workflows`` are kinds with their code versions; ``schema`` is the newest that it knows.

    ``due_at`` is the time by which its next beat must have come: after that it is silent, and others take over.
    ``held`` is how much it held at its last beat, and ``slots`` how much it may hold; ``metrics`` is the port of its
    metrics or 0; ``rates`` are per second.
    """

    id: str
    host: str
    pid: str
    since: datetime
    state: str
    workflows: list[str]
    queues: list[str]
    schema: int
    held: int
    beats: int
    due_at: datetime | None
    slots: int
    polled_at: datetime | None
    metrics: int
    counters: dict[str, int]
    rates: dict[str, float]

    @classmethod
    def of(cls, worker: WorkerRow, held: int, now: datetime) -> Line:
        """What its row says; ``held`` counts the processes that it holds."""
        host, _, pid = worker.name.rpartition(":")
        offer = Offer.decode(worker.hosts)
        due, told = instant(worker.due_at), figures_of(worker.figures)
        return cls(
            id_text(worker.id), host, pid, instant(worker.started_at),
            "silent" if due is not None and due < now else "blocked" if worker.hang else "alive",
            sorted(_workflow(kind, version) for kind, version in offer.hosted if _is_workflow(kind)),
            sorted({kind.removeprefix(QUEUE_MARK) for kind, _ in offer.hosted if is_task(kind)}),
            offer.schema, held, worker.beats, due, told.slots, instant(told.polled_at) if told.polled_at else None,
            told.metrics, told.counters, told.rates,
        )  # fmt: skip


def _is_workflow(kind: str) -> bool:
    """Whether people have written it: not a queue, nor what every worker serves."""
    return not is_task(kind) and not kind.startswith(LIBRARY)


def _workflow(kind: str, version: str) -> str:
    """A kind with its version: ``order:2``, or ``shop:order`` where the version is the place of its definition."""
    if version.endswith(f":{kind}"):
        return version
    return f"{kind}:{version}" if version else kind


async def workers(*, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List living workers, what they serve and how much they hold.

    A worker must beat again before the time shown; a silent one has missed it,
    and others take over what it holds.
    """
    async with connected(url) as engine:
        now = await present(engine)
        lines = await seen(engine, now)
        if json:
            output.show_json(lines)
        else:
            output.show(_rows(lines, now, utc=utc) if lines else "no worker is alive")


ENDS = ("completed", "failed", "cancelled")


def rate(rates: Mapping[str, float], *names: str) -> str:
    """How many of these there were in a second, together."""
    return f"{sum(rates.get(name, 0.0) for name in names):,.1f}"


async def seen(engine: Engine, now: datetime) -> list[Line]:
    """The living workers, the oldest first."""
    alive = sorted(await engine.store.workers(), key=lambda worker: worker.started_at)
    return [Line.of(worker, await held_by(engine.store, worker), now) for worker in alive]


def _rows(lines: list[Line], now: datetime, *, utc: bool) -> Rows:
    rows = Rows(
        "worker",
        "state",
        "since",
        "held",
        "slots",
        "steps/s",
        "ends/s",
        "next beat",
        "id",
        "queues",
        "schema",
        "workflows",
    )
    for line in lines:
        rows.add(
            f"{line.host}:{line.pid}",
            line.state,
            text.clock(line.since, utc=utc),
            held_text(line.held, counted=not line.slots),
            f"{line.slots:,}" if line.slots else "",
            rate(line.rates, "steps"),
            rate(line.rates, *ENDS),
            text.when(line.due_at, now),
            line.id,
            ", ".join(line.queues) or "none",
            str(line.schema),
            ", ".join(line.workflows) or "none",
        )
    return rows
