"""Observation: how metrics and traces hear what a worker does; an engine without them runs none of this code.

What is written is heard from the committer, once, when the database has answered: a replay writes nothing, so nothing
of it is counted or traced a second time. Attempts of steps are heard from the agent that runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from perdure.authoring.step import Attempt
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer
from perdure.kernel.message import Message, SendAnswer
from perdure.kernel.process import Process
from perdure.runtime.committer import Committer
from perdure.runtime.steps.agent import Agent

if TYPE_CHECKING:
    from perdure.futures import OnAnswer
    from perdure.runtime.parts import WorkerParts
    from perdure.runtime.ready import Ready
    from perdure.runtime.shortage import Shortages
    from perdure.runtime.steps.attempt_run import AttemptRun, StepListener
    from perdure.runtime.steps.isolated.protocol import StepRaised
    from perdure.runtime.store_time import StoreTime


Records = Sequence[Start] | Sequence[Commit] | Sequence[Message]
WrittenAnswers = Sequence[StartAnswer | CommitAnswer | SendAnswer]


class Observer(Protocol):
    """Hears what a worker does; called on the event loop, and must not raise."""

    def written(self, records: Records, answers: WrittenAnswers) -> None:
        """The database has answered these records, which are of one kind; some may have been refused."""

    def attempted(self, attempt: AttemptRun, seconds: float, failed: bool, time: StoreTime) -> None:
        """An attempt of a step that had begun has ended after so many seconds; ``time`` is the store's."""

    def watch(self, ready: Ready, monotonic: Callable[[], float]) -> None:
        """This queue runs the turns: to measure one, replace its ``turn``, and put it back when that one is over."""

    def timed_out(self, attempt: AttemptRun) -> None:
        """An attempt ran over its deadline."""


class Tracer(Observer, Protocol):
    """An observer that also puts the trace into what goes out, where there is room, and into the code of steps."""

    def start(self, process: Process, given: Mapping[str, Any] | None) -> Process:
        """The row of a new process with its context, for which this one is given."""

    def commit(self, commit: Commit) -> Commit:
        """A commit as it is to be written."""

    def send(self, message: Message) -> Message:
        """A message as it is to be written."""

    def enter(self, attempt: Callable[[], Attempt]) -> object:
        """The context of a step's code has been made, and is the present one: ``attempt`` is what the code may know."""


class ObservedCommitter(Committer):
    """A committer whose observers hear all that it has written."""

    observers: Sequence[Observer] = ()

    def _hear(self, records: Sequence[Any], answers: Sequence[Any], sent: float) -> None:
        super()._hear(records, answers, sent)
        for observer in self.observers:
            observer.written(records, answers)


class TracedCommitter(ObservedCommitter):
    """A committer that also lets a tracer put its context into what goes out."""

    tracer: Tracer

    def commit(self, commit: Commit, answered: OnAnswer) -> None:
        """See Committer."""
        super().commit(self.tracer.commit(commit) if commit.starts else commit, answered)

    def send(self, message: Message, answered: OnAnswer) -> None:
        """See Committer."""
        super().send(self.tracer.send(message), answered)


class ObservedAgent(Agent):
    """An agent whose observers hear of each attempt that has ended."""

    def __init__(self, parts: WorkerParts, listener: StepListener, shortages: Shortages) -> None:
        if parts.tracer is not None:
            tracer: Tracer = parts.tracer
            self.enter = tracer.enter
        super().__init__(parts, listener, shortages)
        self._observers: Sequence[Observer] = parts.observers
        self._attempted = parts.observers[0].attempted if len(parts.observers) == 1 else self._tell

    def _ended(self, attempt_run: AttemptRun, result: bytes | None, error: BaseException | StepRaised | None) -> None:
        if attempt_run.started:
            self._attempted(attempt_run, self.loop.time() - attempt_run.started, error is not None, self.time)
        Agent._ended(self, attempt_run, result, error)  # for each step: super() would cost more

    def _tell(self, attempt_run: AttemptRun, seconds: float, failed: bool, time: StoreTime) -> None:
        for observer in self._observers:
            observer.attempted(attempt_run, seconds, failed, time)

    def _deadline(self, attempt_run: AttemptRun) -> None:
        before = self.telemetry.counters["step_timeouts"]
        super()._deadline(attempt_run)
        if self.telemetry.counters["step_timeouts"] != before:
            for observer in self._observers:
                observer.timed_out(attempt_run)
