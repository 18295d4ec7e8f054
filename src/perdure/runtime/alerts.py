"""Alerts: what a person should know of now, told in one way: a log record, a counter, and the program's own function.

A process that is broken is told of once that is stored; so is a suspect. A step's error is told of by the worker that
has seen it, before it is stored: if the worker dies in between, the next one may tell it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.clock import SECOND
from perdure.errors import DefinitionError
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.logs import Confided, logger
from perdure.runtime import failure_log
from perdure.telemetry import Telemetry
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.kernel.breaker import Circuit
    from perdure.kernel.retry import AfterFailure
    from perdure.turns.ask import Ask

log = logger("alert")

AlertKind: TypeAlias = Literal[
    "step", "unknown", "threshold", "broken", "undo", "suspects", "breaker", "restored", "recovery", "outage"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that a person should know of; ``id`` names the fact, for those who collect alerts.

    ``kind`` is *step* (a step has failed by an error that is raised as permanent), *unknown* (nobody knows whether a
    step that runs at most once was done), *threshold* (a step has come to an ``"alert"`` of its retry), *broken* (a
    process waits for a person), *undo* (it does, as an undo has failed for good), *suspects* (processes were held by
    workers that died), *breaker* (a circuit breaker has opened), *restored* (the database goes on from another state),
    *recovery* (no worker passes one of the sweeps that find what is stuck), *outage* (a kind of process is held, as
    many of it fail alike, or is let go again). ``text`` says it in a sentence, ``error`` is the class of an error and
    ``detail`` its text. What does not belong to the kind is empty, or None.
    """

    kind: AlertKind
    id: str
    text: str
    process_id: str | None = None
    process_kind: str | None = None
    process_key: str | None = None
    step: str | None = None
    attempt: int | None = None
    error: str = ""
    detail: str = ""


OnAlert: TypeAlias = Callable[[Alert], Awaitable[None] | None]
"""What a program does with an alert: a function, async or not, which runs on the engine's event loop."""


def checked_on_alert(on_alert: OnAlert | None) -> OnAlert | None:
    """The function, if it is one; raises DefinitionError."""
    if on_alert is not None and not callable(on_alert):
        raise DefinitionError(f"on_alert={on_alert!r:.100} is no function. Give one that takes an Alert.")
    return on_alert


class Alerts:
    """Tells of alerts. What ``on_alert`` raises is logged and harms nothing."""

    def __init__(self, telemetry: Telemetry, on_alert: OnAlert | None = None) -> None:
        self._telemetry = telemetry
        self._on_alert = on_alert
        self._telling: dict[asyncio.Future[None], Alert] = {}

    async def close(self, seconds: float, hurry: asyncio.Event) -> None:
        """Wait until ``on_alert`` has returned from each alert; what takes longer, or is hurried, is cut off."""
        if self._on_alert is None:
            return
        await asyncio.sleep(0)  # what was told at last is handed over
        hurried: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
        if self._telling:
            done: asyncio.Future[Any] = asyncio.gather(*self._telling, return_exceptions=True)
            await asyncio.wait([done, hurried], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        for telling, alert in list(self._telling.items()):
            if telling.cancel():
                log.error("on_alert is cut off, as the worker stops; the alert %s stands in the log", alert.id)
        await asyncio.sleep(0)

    def ended(self, process: Process) -> None:
        """A process has failed, or is broken, and that is stored."""
        failure_log.ended(process)
        if process.status is Status.BROKEN:
            failure = Failure.shown(process.error or b"")
            undo = failure.type == "UndoFailed"
            what = "an undo of process %s has failed for good" if undo else "process %s is broken"
            text = f"{what % failure_log.name(process)}, and waits for a person; `perdure show` says what may be done"
            fact = f"{id_text(process.id)}:{process.run}:{process.version}"
            self._tell("undo" if undo else "broken", fact, text, process, failure)

    def attempt_failed(self, process: Process, ask: Ask[Any], failure: Failure, plan: AfterFailure) -> None:
        """An attempt of a step has failed, and its retry has planned what follows."""
        failure_log.attempt_failed(process, ask, failure, plan.delay)
        if plan.alert:
            self._telemetry.count("step_alerts")
            what = (
                "its process is broken" if plan.breaks else "it has failed" if plan.delay is None else "it is tried on"
            )
            text = f"has come to a threshold after {failure.attempts} attempts, and {what}"
            self._of_step("threshold", process, ask, failure, text)
        elif failure.unknown and plan.delay is None:
            self._of_unknown(process, ask, failure)
        elif failure.permanent and not failure.declared and plan.delay is None and type(ask) is not UndoAsk:
            self._of_step("step", process, ask, failure, "has failed by an error that is raised as permanent")

    def unknown(self, process: Process, ask: Ask[Any], failure: Failure) -> None:
        """Nobody knows whether a step that runs at most once was done."""
        failure_log.attempt_failed(process, ask, failure, None)
        self._of_unknown(process, ask, failure)

    def suspects(self, many: int, first: Process, how: str) -> None:
        """So many processes have become suspects, ``first`` among them."""
        self._telemetry.count("suspects", many)
        text = f"{many} processes were held at two deaths of workers: they are suspects and run in quarantine, {how}"
        if many == 1:
            text = f"process {failure_log.name(first)} was held at two deaths of workers, and runs in quarantine, {how}"
        fact = f"{id_text(first.id)}:{first.run}:{first.deaths}"
        self._tell("suspects", fact, text, first if many == 1 else None, None)

    def breaker(self, circuit: Circuit) -> None:
        """A circuit breaker has opened by itself."""
        self._tell("breaker", f"{circuit.name}:{circuit.version}", circuit.text(), None, None)

    def restored(self, line: str, run: str) -> None:
        """The database goes on from another state, and a check run examines everything in it."""
        text = (
            "the database goes on from another state (a restored backup, or a fail-over); every process is being "
            f"examined by check run {run}: see `perdure check findings`, and what steps have done since that state"
        )
        self._tell("restored", line, text, None, None)

    def sweep_silent(self, sweep: str, microseconds: int, at: int) -> None:
        """No worker has passed a sweep for so long, as it was at that time."""
        text = (
            f"no worker has passed the sweep {sweep} for {microseconds / SECOND:.0f} s: what it would find stays "
            "stuck. `perdure recovery sweeps` shows its last pass and error; restart the workers if they hang"
        )
        self._tell("recovery", f"{sweep}:{at}", text, None, None)

    def outage(self, kind: str, circuit: Circuit, fingerprint: str, version: int) -> None:
        """A kind is held since many of its processes fail alike, or is let go again."""
        if circuit.closed:
            text = f"the outage of {kind} is over ({circuit.reason}): what waits is let go, few at first"
        else:
            text = (
                f"{kind} has an outage ({circuit.reason}): its processes wait, but for canaries. `perdure failures` "
                f"shows the cause, {fingerprint}; `perdure outage ls` how it stands"
            )
        self._tell("outage", f"{kind}:{version}", text, None, None)

    def _of_unknown(self, process: Process, ask: Ask[Any], failure: Failure) -> None:
        self._of_step("unknown", process, ask, failure, "runs at most once, and nobody knows whether it was done")

    def _of_step(self, kind: AlertKind, process: Process, ask: Ask[Any], failure: Failure, what: str) -> None:
        text = f"step {ask.name} of process {failure_log.name(process)} {what}"
        fact = f"{id_text(process.id)}:{process.run}:{process.version}:{ask.name}:{ask.place}:{failure.attempts}"
        self._tell(kind, fact, text, process, failure, step=ask.name, attempt=failure.attempts)

    def _tell(
        self, kind: AlertKind, fact: str, text: str, process: Process | None, failure: Failure | None, **more: Any
    ) -> None:
        of = {} if process is None else failure_log.fields(process)
        error, detail = ("", "") if failure is None else (failure.type, failure.message)
        alert = Alert(kind=kind, id=f"{kind}:{fact}", text=text, error=error, detail=detail, **of, **more)
        self._telemetry.count("alerts")
        said = f": {error}" if error else ""
        confided = Confided(f": {detail}" if detail else "")
        log.warning("%s%s%s", text, said, confided, extra={**of, **more, "alert": kind})
        if self._on_alert is not None:
            asyncio.get_running_loop().call_soon(self._hand_over, alert)

    def _hand_over(self, alert: Alert) -> None:
        assert self._on_alert is not None
        try:
            answer = self._on_alert(alert)
            if isawaitable(answer):
                telling = asyncio.ensure_future(answer)
                self._telling[telling] = alert
                telling.add_done_callback(self._told)
        except Exception:
            log.exception("on_alert has raised; the alert stands in the log")

    def _told(self, telling: asyncio.Future[None]) -> None:
        self._telling.pop(telling, None)
        if not telling.cancelled() and (error := telling.exception()) is not None:
            log.error("on_alert has raised; the alert stands in the log", exc_info=error)
