"""A witness: looks on whenever a step begins, and compares what is stored at that moment with what the program says."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import json

from perdure.kernel.child import is_task
from perdure.kernel.event import EventType
from perdure.kernel.names import id_bytes
from perdure.testing.simulator import Cluster, Violation
from tests.simulator.evidence import program_of
from tests.simulator.ledger import Effect
from tests.simulator.program import Do, Kin, Line, Node, inside

BY_PEOPLE = frozenset({EventType.SET_BY_HAND, EventType.SKIPPED})


class Witness:
    """Ends a history in which a step begins before the reason for it is stored (law one_transaction)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._before: dict[bytes, dict[str, tuple[str, ...]]] = {}

    def saw(self, effect: Effect) -> None:
        """An effect has just been noted."""
        if effect.kind != "began":
            return
        known = self.cluster.monitor.known.get(id_bytes(effect.process))
        if known is None:
            self._fail(f"{effect.label} begins for the process {effect.process}, which is not stored")
            return
        row = known.process
        if row.owner is None or self.cluster.server.locks.get(row.owner) is not self.cluster.loop.current():
            return  # somebody else has it now, and we shall hear of it
        if is_task(row.kind) or any(event.type in BY_PEOPLE for event in known.events):
            return
        before = self._before.get(row.id)
        if before is None:
            before = self._before[row.id] = dict(_before(program_of(row).body))
        recorded = {event.payload for event in known.events if event.type is EventType.STEP_COMPLETED}
        for label in before.get(effect.label, ()):
            if json.encode(label) not in recorded:
                self._fail(f"{effect.label} begins, and no result of {label} before it is stored")

    def _fail(self, text: str) -> None:
        self.cluster.loop.fail(Violation("one_transaction", text))


def _before(node: Node, prior: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For every step of a process itself: the steps whose results it has to wait for; queued ones are left out."""
    match node:
        case Do(label=label):
            yield label, prior
        case Kin():
            return
        case Line(parts):
            for part in parts:
                yield from _before(part, prior)
                if isinstance(part, Do) and not part.queue:
                    prior += (part.label,)
        case _:
            for part in inside(node):
                yield from _before(part, prior)
