"""The plan of an operation: which command for which processes, and how carefully; and what has become of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from perdure.authoring.attempt import attempt
from perdure.authoring.step import step
from perdure.kernel.process import DEFAULT_PRIORITY
from perdure.kernel.retry import Retry

UNDO = "undo"
"""The verb of an operation that takes back what another one has done."""


class OperationPlan(Struct, frozen=True, omit_defaults=True):
    """What an operation does: ``verb`` to all processes that fit the query ``where``.

    ``step``, ``value``, ``method``, ``restart`` and ``force`` are for verbs that take them. ``rate`` is how many
    processes a second it does at most. ``canary`` processes are done first; the others only if of those no more than
    ``stop_at`` (a share, 0 to 1) have relapsed after ``watch`` seconds, the time after which it is looked whether
    processes have moved past the break. It stops at ``stop_after_failures`` processes that have relapsed or could not
    be commanded (0: never), and if more than the share ``stop_when_relapsed`` of the commanded ones have relapsed
    (1: never). Of several operations that have something to do the one with the lowest ``priority`` goes first.
    For ``live`` seconds it looks again for processes that have come to fit since. ``undoes`` is the id of the operation
    that it takes back, ``undoes_verb`` that one's verb.
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
    value: Any = None
    method: str = ""
    restart: bool = False
    force: bool = False
    stop_after_failures: int = 0
    stop_when_relapsed: float = 1.0
    priority: int = DEFAULT_PRIORITY
    live: float = 0.0
    undoes: str = ""
    undoes_verb: str = ""

    @property
    def stops(self) -> bool:
        """Whether it may stop itself after its canary too."""
        return self.stop_after_failures > 0 or self.stop_when_relapsed < 1


class OperationStatus(Struct, frozen=True):
    """What has become of an operation.

    ``phase`` is canary, watching the canary, running, watching, done, stopped or aborted. ``planned`` counts the
    processes that fitted when it began (None before it has counted them), ``done`` the commanded ones, ``relapsed``
    those of them that came back to where they were. ``left_out`` says why others were not commanded, ``failed`` for
    which the command could not be carried out: at the end ``done``, both of these and ``planned`` are one sum.
    ``paused``, ``stopped`` and ``waits`` say why it does not go on.
    """

    phase: str
    done: int = 0
    relapsed: int = 0
    left_out: dict[str, int] = {}
    paused: str = ""
    stopped: str = ""
    planned: int | None = None
    failed: dict[str, int] = {}
    waits: str = ""

    @property
    def seen(self) -> int:
        """How many processes it is through with, commanded or not."""
        return self.done + sum(self.left_out.values()) + sum(self.failed.values())

    @property
    def ended(self) -> bool:
        """Whether it does nothing more, for good."""
        return self.phase in ("done", "aborted")


class Window(Struct, frozen=True):
    """Which processes count for one look of an operation: those that changed last after ``since``, up to ``until``.

    Both are times by the store's clock, in microseconds. A look that is not ``first`` may meet commanded ones again.
    """

    until: int
    since: int = 0

    @property
    def first(self) -> bool:
        """Whether the operation has not looked before."""
        return self.since == 0

    def holds(self, changed_at: int) -> bool:
        """Whether a process that has changed then counts."""
        return self.since < changed_at <= self.until


REASONS = 50
"""How many different reasons are counted each by itself."""
OTHER = "other reasons"
CHANGED = "it has changed since the operation began"


def add_reasons(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Add why processes were left out, with how many each; what is more than can be shown is counted together."""
    for why, number in more.items():
        known = why if why in counts or len(counts) < REASONS else OTHER
        counts[known] = counts.get(known, 0) + number


def limited(counts: Mapping[str, int]) -> dict[str, int]:
    """The same counts, with no more reasons than can be shown."""
    shown: dict[str, int] = {}
    add_reasons(shown, counts)
    return shown


class Selected(Struct, frozen=True):
    """The processes of one portion, and after which one the next portion begins; None behind the last one.

    ``waits`` says for which operation this one waits instead.
    """

    processes: list[str]
    before: str | None
    waits: str = ""


class Carried(Struct, frozen=True):
    """What has become of a portion: how many were ``done``, and why others were not, with how many each.

    ``left_out`` are those whom the command does not fit, ``failed`` those for whom it could not be carried out.
    """

    done: int
    left_out: dict[str, int]
    failed: dict[str, int] = {}


class OperatingEngine(Protocol):
    """The engine whose worker runs the operation, as far as it is needed here."""

    @property
    def operations(self) -> Operating:
        """What selects and commands processes."""


class Operating(Protocol):
    """What selects and commands processes: ``engine.operations``."""

    async def planned(self, plan: OperationPlan, window: Window) -> int:
        """How many processes fit the plan."""

    async def select(
        self, plan: OperationPlan, operation: str, window: Window, before: str | None, most: int
    ) -> Selected:
        """The next processes that fit the plan."""

    async def carry_out(self, plan: OperationPlan, operation: str, window: Window, processes: list[str]) -> Carried:
        """Give each its command, once."""

    async def relapsed(self, plan: OperationPlan, operation: str, began: int) -> int:
        """How many fit the plan's query again since the operation has commanded them."""


_UNTIL_IT_SUCCEEDS = Retry(attempts=1_000_000, cap=60.0, budget=None)


def _operations() -> Any:
    return attempt().engine.operations


@step(name="perdure/count", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def count(plan: OperationPlan, window: Window) -> int:
    """How many processes there are to command."""
    operating: Operating = _operations()
    return await operating.planned(plan, window)


@step(name="perdure/select", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def select(plan: OperationPlan, operation: str, window: Window, before: str | None, most: int) -> Selected:
    """Which processes come next."""
    operating: Operating = _operations()
    return await operating.select(plan, operation, window, before, most)


@step(name="perdure/carry out", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def carry_out(plan: OperationPlan, operation: str, window: Window, processes: list[str]) -> Carried:
    """Command them. Run again, it counts those that it has commanded before, and does not command them twice."""
    operating: Operating = _operations()
    return await operating.carry_out(plan, operation, window, processes)


@step(name="perdure/look back", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def look_back(plan: OperationPlan, operation: str, began: int) -> int:
    """How many have come back to where they were."""
    operating: Operating = _operations()
    return await operating.relapsed(plan, operation, began)
