"""The verbs that explain: of one process, and of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from perdure.client import validation
from perdure.client.parts import ClientParts
from perdure.client.validation import ProcessId
from perdure.kernel.process import UNFINISHED
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.explaining.explanation import Explanation
    from perdure.client.finding.board import BoardLine
    from perdure.client.finding.failures import FailureGroup
    from perdure.client.health import Health


class Explaining:
    """The part of a client that says what is wrong."""

    parts: ClientParts

    async def explain(self, process: ProcessId) -> Explanation:
        """Say why a process does not move, since when, what speaks for it, what comes next, and what can be done.

        Nothing is changed: commands that it proposes are tried without writing. Raises ProcessNotFound, InvalidKey.
        """
        validation.outside_a_turn()
        from perdure.client.explaining.explanation import explained

        return await explained(self.parts, await self.parts.row(validation.reference(process)))

    async def health(self) -> Health:
        """Look at the database, workers, what nobody serves, queues, broken processes, recovery, sweeps, the clock."""
        validation.outside_a_turn()
        from perdure.client.health import health

        return await health(self.parts.store)

    async def board(self, where: str = "", *, kind: str | None = None) -> list[BoardLine]:
        """The unfinished processes by kind and by who moves them next, with how many are overdue. Raises InvalidInput.

        Queued steps are among them. All are read, so that every count is right.
        """
        validation.outside_a_turn()
        from perdure.client.finding.board import board

        search = validation.search(Search(kind=kind, statuses=UNFINISHED, tasks=True))
        return await board(self.parts.store, search, where)

    async def failures(
        self, where: str = "", *, kind: str | None = None, by: Literal["cause", "worker"] = "cause"
    ) -> list[FailureGroup]:
        """The failed and broken processes in groups, each of one cause, the largest first; ``where`` narrows them.

        With ``by="worker"`` a group has one cause and one worker, on which its processes have failed.
        What is broken or failed is read as a whole, so that every count is right. Raises InvalidInput.
        """
        validation.outside_a_turn()
        from perdure.client.finding.failures import FAILED, grouped

        search = validation.search(Search(kind=kind, statuses=FAILED, tasks=True))
        return await grouped(self.parts.store, search, where, by)
