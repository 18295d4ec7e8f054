"""A worker with a rule for outages that is killed when it writes that one begins, is tried or ends, or soon after.

Arguments: the URL, the state at whose writing it dies (``open``, ``half-open`` or ``closed``), and when: ``before`` it
is written, ``after`` it, or so many of its commits later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, OutageState
from perdure.runtime.options import WorkerOptions
from perdure.store.base import RowT, Store
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore
from tests.kill import lender

OPTIONS = WorkerOptions(outages={"loan": {"failures": 3, "open_for": 0.5}})


class DoomedStore(FaultyStore):
    """The store of a worker that dies at a change of the outage of loans."""

    def __init__(self, store: Store, state: str, when: str) -> None:
        super().__init__(store)
        self._state, self._when = state, when
        self._left = int(when) if when.isdigit() else 0
        self._reached = False
        self.after = self._count

    async def records(self, table: type[RowT], changes: Sequence[RowT] = ()) -> list[RowT]:
        """See Store."""
        fatal = any(self._is_fatal(change) for change in changes)
        if fatal and self._when == "before":
            _die()
        rows = await super().records(table, changes)
        if fatal and self._when == "after":
            _die()
        self._reached = self._reached or fatal
        return rows

    def _is_fatal(self, change: Any) -> bool:
        if not isinstance(change, Note) or change.name != f"{PREFIX}loan":
            return False
        state = change.read(OutageState)
        return bool(state.changes) and state.circuit.state == self._state

    async def _count(self, name: str, argument: Any) -> None:
        if name == "commit" and self._left and self._reached:
            self._left = max(self._left - len(argument), 0)
            if not self._left:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, state: str, when: str) -> None:
    """Work until then."""
    store = DoomedStore(store_for(url, Computer()), state, when)
    async with Engine(url, store=store, work=True, workflows=[lender], options=OPTIONS) as engine:
        print("ready", flush=True)
        await engine.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
