"""The plan of an operation: which command for which processes, and how carefully; and what has become of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from perdure.authoring.attempt import attempt
from perdure.authoring.step import step
from perdure.kernel.retry import Retry


class OperationPlan(Struct, frozen=True, omit_defaults=True):
    """What an operation does: ``verb`` to all processes that fit the query ``where``.

    ``step`` is for verbs that need one. ``rate`` is how many processes a second it does at most. ``canary`` processes
    are done first; the others only if of those no more than ``stop_at`` (a share, 0 to 1) have relapsed after ``watch``
    seconds, the time after which it is looked whether processes have moved past the break.
    """

    verb: str
    where: str
    step: str = ""
    rate: float | None = None
    canary: int = 0
    stop_at: float = 0.5
    watch: float = 10.0
    who: str = ""
    why: str = ""


class OperationStatus(Struct, frozen=True):
    """What has become of an operation.

    ``phase`` is canary, watching the canary, running, watching, done, stopped or aborted. ``done`` counts commanded
    processes, ``relapsed`` those of them that came back to where they were, ``left_out`` says why others were not
    commanded. ``paused`` and ``stopped`` say why it does not go on.
    """

    phase: str
    done: int = 0
    relapsed: int = 0
    left_out: dict[str, int] = {}
    paused: str = ""
    stopped: str = ""


REASONS = 50
"""How many different reasons are counted each by itself."""
OTHER = "other reasons"


def add_reasons(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Add why processes were left out, with how many each; what is more than can be shown is counted together."""
    for why, number in more.items():
        known = why if why in counts or len(counts) < REASONS else OTHER
        counts[known] = counts.get(known, 0) + number


class Selected(Struct, frozen=True):
    """The processes of one portion, and after which one the next portion begins; None behind the last one."""

    processes: list[str]
    before: str | None


class Carried(Struct, frozen=True):
    """What has become of a portion: how many were ``done``, and why others were not, with how many each."""

    done: int
    left_out: dict[str, int]


class OperatingEngine(Protocol):
    """The engine whose worker runs the operation, as far as it is needed here."""

    @property
    def operations(self) -> Operating:
        """What selects and commands processes."""


class Operating(Protocol):
    """What selects and commands processes: ``engine.operations``."""

    async def select(self, plan: OperationPlan, frozen: int, before: str | None, most: int) -> Selected:
        """The next processes that fit the plan and have not changed since ``frozen``."""

    async def carry_out(self, plan: OperationPlan, operation: str, frozen: int, processes: list[str]) -> Carried:
        """Give each its command, once."""

    async def relapsed(self, plan: OperationPlan, operation: str, frozen: int) -> int:
        """How many fit the plan's query again since the operation has commanded them."""


_UNTIL_IT_SUCCEEDS = Retry(attempts=1_000_000, cap=60.0, budget=None)


def _operations() -> Any:
    return attempt().engine.operations


@step(name="perdure/select", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def select(plan: OperationPlan, frozen: int, before: str | None, most: int) -> Selected:
    """Which processes come next."""
    operating: Operating = _operations()
    return await operating.select(plan, frozen, before, most)


@step(name="perdure/carry out", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def carry_out(plan: OperationPlan, operation: str, frozen: int, processes: list[str]) -> Carried:
    """Command them. Run again, it counts those that it has commanded before, and does not command them twice."""
    operating: Operating = _operations()
    return await operating.carry_out(plan, operation, frozen, processes)


@step(name="perdure/look back", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def look_back(plan: OperationPlan, operation: str, frozen: int) -> int:
    """How many have come back to where they were."""
    operating: Operating = _operations()
    return await operating.relapsed(plan, operation, frozen)
