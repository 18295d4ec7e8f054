"""The plan of a check run: which checks of which processes, and how quickly; and what has become of it."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from perdure.authoring.attempt import attempt
from perdure.authoring.step import step
from perdure.kernel.retry import Retry


class CheckPlan(Struct, frozen=True, omit_defaults=True):
    """What a check run does: it examines all processes that fit the query ``where``, or are of ``kind``, or all.

    ``only`` names the checks (empty: all). ``fix`` mends what can be mended. ``rate`` is how many processes a second it
    examines at most. ``total`` is how many there were at the start, 0 if nobody counted.
    """

    only: tuple[str, ...] = ()
    where: str = ""
    kind: str = ""
    fix: bool = False
    rate: float | None = None
    total: int = 0
    who: str = ""
    why: str = ""


class CheckStatus(Struct, frozen=True):
    """What has become of a check run.

    ``phase`` is running, done or cancelled. ``checked`` of ``total`` processes were examined (``total`` is 0 if nobody
    counted). ``found`` and ``mended`` count faults by the name of the check. ``cancelled`` says why it was cancelled.
    """

    phase: str
    checked: int = 0
    total: int = 0
    found: dict[str, int] = {}
    mended: dict[str, int] = {}
    cancelled: str = ""


class CheckPortion(Struct, frozen=True):
    """What became of one portion: the next one begins behind ``before``; None behind the last one.

    ``checked`` processes were examined; ``skipped`` were read and not examined, since only others can judge them, or
    since they moved meanwhile.
    """

    checked: int
    before: str | None
    found: dict[str, int] = {}
    mended: dict[str, int] = {}
    skipped: int = 0


class Checking(Protocol):
    """What examines processes: ``engine.checks``."""

    async def portion(self, plan: CheckPlan, before: str | None, most: int) -> CheckPortion:
        """Examine the next processes that fit the plan, and mend them if it says so."""


_UNTIL_IT_SUCCEEDS = Retry(attempts=1_000_000, cap=60.0, budget=None)


def _checks() -> Any:
    return attempt().engine.checks


@step(name="perdure/examine", retry=_UNTIL_IT_SUCCEEDS, timeout=3600)
async def examine(plan: CheckPlan, before: str | None, most: int) -> CheckPortion:
    """Examine the next portion. Run again, it finds what is left: what was mended before its worker died is sound."""
    checking: Checking = _checks()
    return await checking.portion(plan, before, most)
