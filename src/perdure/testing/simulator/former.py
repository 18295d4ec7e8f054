"""The store of a node that runs the first release: it does not see the letters that newer workers have left."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.kernel.claim import Claim, ClaimAnswer
from perdure.kernel.message import LettersWanted, Message
from perdure.kernel.worker import Offer, WorkerRow
from perdure.testing.simulator.store import SimStore


class FormerStore(SimStore):
    """It reads what is unheard and nothing else, and does not say which schema it knows."""

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """See Store."""
        hosts = Offer(Offer.decode(worker.hosts).hosted).encode()
        return await super().enlist(replace(worker, hosts=hosts), silence)

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store."""
        answer = await super().claim(claim)
        return replace(answer, claimed=tuple(replace(one, backlog=False) for one in answer.claimed))

    async def messages(
        self, wants: Sequence[tuple[bytes, int]] = (), *, most: int = 0, waiting: Sequence[LettersWanted] = ()
    ) -> list[Message]:
        """See Store."""
        return await super().messages(wants, most=most) if wants else []
