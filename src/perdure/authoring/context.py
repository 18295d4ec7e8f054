"""The context in which code runs: what came with the start of its process, or with the call that it handles."""

from __future__ import annotations

from typing import Any

from perdure.authoring.attempt import attempt
from perdure.kernel.context import read
from perdure.turns.current import current_turn


def context() -> dict[str, Any]:
    """The context that came with the request for which this code runs; a copy, and empty if none came.

    In a workflow it is that of its start, in a method of a machine that of the call or signal (a timer has that of the
    method which has set it), in a step that of the code which has asked for it. Raises UnreadablePayload if it was
    sealed and cannot be opened here.
    """
    loop = current_turn()
    return attempt().context if loop is None else read(loop.context)
