"""A plot: a small scenario with its cast and its exact outcome, which no crash may change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from perdure import attempt
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.kernel.process import Status
from perdure.testing.simulator import Cluster
from tests.simulator.ledger import Desk


class Ending(Struct, frozen=True):
    """How a process ends: ``steps`` are the results recorded in its last run, each once, in their order.

    None are those of a process whose steps depend on when it was killed.
    """

    kind: str
    status: Status
    value: Any = None
    run: int = 1
    steps: tuple[str, ...] | None = ()


@dataclass(frozen=True)
class Plot:
    """What is played, by whom, and what must come of it whatever call was cut.

    ``client`` is what the client's program does, from its beginning, each time it is started; ``answer`` is what it
    must come to. ``workers`` gives for each worker what it hosts. ``endings`` are those of all processes there are, by
    kind and in the order of their making. ``deeds`` says what the steps have done, in the order in which it was first
    done, and under how many idempotency keys each. ``seconds`` is how long it may take in all (virtual) with one blow;
    each further one adds as much. ``around`` is what happens to the cluster itself meanwhile. ``pairs`` are the sides
    of calls of which all pairs are tried, and not only each by itself.
    """

    name: str
    client: Callable[[Engine], Awaitable[object]]
    answer: object
    workers: Sequence[Callable[[], Registry]]
    endings: Sequence[Ending]
    deeds: dict[str, int]
    seconds: float
    around: Callable[[Cluster], Coroutine[Any, Any, None]] | None = None
    pairs: Sequence[str] = ()


def deed(label: str, value: Any = None) -> Any:
    """Called by a step: it has really done this, which its worker's death does not take back; gives ``value``."""
    here = attempt()
    Desk.ledger.note("done", here.process, here.idempotency_key, label, here.number)
    return value


def tries(label: str) -> int:
    """Called by a step: how often it was tried so far in the whole history, this time included."""
    here = attempt()
    Desk.ledger.note("began", here.process, here.idempotency_key, label, here.number)
    return sum(effect.kind == "began" and effect.label == label for effect in Desk.ledger.effects)
