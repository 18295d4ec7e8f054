"""Unserved: a caller waits for the result of a process whose code no live worker hosts; the log says so once."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.hosting import lives, start_command, wanted
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Pair, hosted_by
from perdure.logs import logger
from perdure.store.base import Store

log = logger("process")


class Unserved:
    """Logs each kind and version that is waited for here and that no live worker hosts, once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._told: set[Pair] = set()

    async def look(self, awaited: Sequence[Process]) -> None:
        """Check whether live workers host the code of these processes."""
        running = {(row.kind, row.code): row for row in awaited if row.status is Status.RUNNING}
        fresh = {pair: row for pair, row in running.items() if pair not in self._told}
        served = await hosted_now(self.store) if fresh else set()
        for pair, row in fresh.items():
            if pair not in served:
                self._told.add(pair)
                start = f"{wanted(*pair)}. Start one: {start_command(*pair)}"
                log.warning("process %s cannot go on now: no live worker %s", id_text(row.id), start)


async def hosted_now(store: Store) -> set[Pair]:
    """The kinds and versions that live workers host."""
    now = await store.now()
    return hosted_by(one for one in await store.workers() if lives(one, now))
