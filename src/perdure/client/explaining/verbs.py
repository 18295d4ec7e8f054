"""The verbs that explain: of one process, and of the whole."""

from __future__ import annotations

from perdure.client import validation
from perdure.client.explaining.explanation import Explanation, explained
from perdure.client.health import Health, health
from perdure.client.parts import ClientParts
from perdure.client.validation import ProcessId


class Explaining:
    """The part of a client that says what is wrong."""

    parts: ClientParts

    async def explain(self, process: ProcessId) -> Explanation:
        """Say why a process does not move, since when, what speaks for it, what comes next, and what can be done.

        Nothing is changed: commands that it proposes are tried without writing. Raises ProcessNotFound, InvalidKey.
        """
        validation.outside_a_turn()
        return await explained(self.parts, await self.parts.row(validation.reference(process)))

    async def health(self) -> Health:
        """Look at the database, its workers, what nobody serves, queues, broken processes, recovery and the clock."""
        validation.outside_a_turn()
        return await health(self.parts.store)
