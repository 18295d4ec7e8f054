"""The ward: what a sweep is given to do its round, the same for every sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from perdure.answer import asked
from perdure.authoring.registry import Registry
from perdure.clock import Machine
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.finding import Finding
from perdure.runtime.committer import Committer
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.store_time import StoreTime
from perdure.store.base import Store
from perdure.telemetry import Telemetry


class Ward:
    """The store, the committer, the clock and the counters. Sweeps decide by the kernel and write by commits."""

    def __init__(
        self,
        incarnation: Incarnation,
        store: Store,
        registry: Registry,
        committer: Committer,
        time: StoreTime,
        machine: Machine,
        telemetry: Telemetry,
        *,
        retention: float,
        key_retention: float,
    ) -> None:
        self.incarnation = incarnation
        self.store = store
        self.registry = registry
        self.committer = committer
        self.time = time
        self.machine = machine
        self.telemetry = telemetry
        self.retention = retention
        self.key_retention = key_retention
        self.found: Callable[[Finding], None] = lambda finding: None

    async def write(self, commits: Sequence[Commit]) -> int:
        """Have commits written; the answer is how many applied. A lost race is nobody's fault and not counted."""
        given = await asyncio.gather(
            *(asked(self.committer.commit, commit) for commit in commits), return_exceptions=True
        )
        return sum(isinstance(one, CommitAnswer) and one.verdict is Verdict.APPLIED for one in given)
