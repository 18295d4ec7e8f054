"""A teller who answers calls; hosted by victims, which are killed around the commits of his answers."""

from __future__ import annotations

from perdure.authoring.workflow import receive, workflow
from perdure.turns.mailbox import Call
from tests.kill.workload import mark


@workflow
async def teller() -> int:
    """Answer each call after a step, with how many were answered by then, until nothing is asked."""
    answered = 0
    while (call := await receive("ask", Call[int])).value:
        await mark(call.value)
        answered += 1
        call.answer([call.value, answered])
    return answered
