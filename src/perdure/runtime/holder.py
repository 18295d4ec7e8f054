"""The holder of processes, as the modules see it that let processes go: the scheduler of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perdure.kernel.commit import Commit
    from perdure.runtime.events import WorkerEvents
    from perdure.runtime.instance import Instance
    from perdure.runtime.parts import WorkerParts
    from perdure.runtime.process_cache import ProcessCache
    from perdure.runtime.steps.agent import Agent


class Holder(Protocol):
    """Holds processes in memory, by their ids; each is dropped, handed back or parked through it."""

    parts: WorkerParts
    events: WorkerEvents
    agent: Agent
    instances: dict[bytes, Instance]
    cache: ProcessCache
    replaying: set[Instance]
    draining: bool
    hold: int
    lease_seconds: float

    def feed(self, instance: Instance, /) -> None:
        """Have the next turn of a process run soon."""

    def applied(self, instance: Instance, commit: Commit, inbox: int) -> None:
        """A commit was written."""

    def drop(self, instance: Instance) -> None:
        """Let a process go without writing."""

    def release(self, instance: Instance, later: int = 0) -> None:
        """Release a process, to be claimed by others after so many microseconds."""

    def park(self, instance: Instance, error: BaseException) -> None:
        """Park a process as broken."""

    def drain(self) -> None:
        """Begin nothing more."""
