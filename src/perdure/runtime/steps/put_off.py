"""Put off: attempts that have failed for a shortage of this worker. Each is made again, uncounted, after a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure import limits
from perdure.exhaustion import exhausted_in_step
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.attempt_run import AttemptRun, Runner
from perdure.runtime.steps.next_attempt import anew

if TYPE_CHECKING:
    from perdure.runtime.parts import WorkerParts


class PutOff(dict[AttemptRun, None]):
    """The attempts that wait for a shortage to end; ``begin`` is called with each when it is to be made again."""

    def __init__(
        self, parts: WorkerParts, runner: Runner, shortages: Shortages, begin: Callable[[AttemptRun], None]
    ) -> None:
        super().__init__()
        self._runner = runner
        self._random = parts.machine.random
        self._shortages = shortages
        self._begin = begin

    def take(self, attempt_run: AttemptRun, error: BaseException) -> bool:
        """Put an attempt off, if it failed for a shortage of this worker; after a while it counts."""
        what, ask = exhausted_in_step(error), attempt_run.ask
        if what is None or (ask.step.at_most_once and attempt_run.started):
            return False
        if not self._shortages.patient((attempt_run.instance.process.id, ask.name, ask.place)):
            return False
        self._shortages.refused(what, f"{ask.step}: {error!r:.200}")
        self._runner.telemetry.counters["attempts_put_off"] += 1
        again = anew(attempt_run)
        delay = limits.SHORTAGE_AGAIN_SECONDS * (0.5 + self._random())
        again.timer = self._runner.loop.call_later(delay, self._begin, again)
        self[again] = None
        return True
