"""The position of a flow: in which state it is, what it waits for, and what came that it did not expect.

It is one of the stored fields, named ``flow``, so it is seen where the others are. Times are microseconds since 1970.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from perdure.errors import InvalidInput
from perdure.kernel.names import id_bytes, id_text

ABORTED = "aborted"
"""The state of a flow that a person has aborted."""


class OpenRequest(Struct, omit_defaults=True):
    """A request that no answer has completed.

    ``id`` is the one by which it is answered, ``state`` the one in which it was first sent, at ``since``; ``sends``
    counts how often it was. ``again`` is when it is sent next, ``until`` when it is given up. ``trouble`` says why it
    could not be sent the last time.
    """

    name: str
    id: str
    state: str
    since: int
    until: int
    sends: int = 0
    again: int | None = None
    trouble: str = ""


class Unexpected(Struct, omit_defaults=True):
    """An event or an answer that came to a flow at ``at``, in ``state``, and changed nothing; ``why`` says why not.

    ``arguments`` are what came with it, if they are small; the history of the process has them too.
    """

    event: str
    state: str
    at: int
    why: str
    arguments: Any = None


class FlowPosition(Struct, omit_defaults=True):
    """Where a flow is: its ``state``, entered at ``since`` as the ``visit``-th one.

    ``came`` are the events of an ``all_of`` row that have come. ``due`` are the timeouts of the state and of stretches,
    by name, ``requests`` the open ones; ``asked`` counts all that were ever made. ``unexpected`` are the last events
    that came and were not expected, and ``passed_over`` counts them. ``aborted`` says why a person has aborted it.
    """

    state: str = ""
    visit: int = 0
    since: int = 0
    came: list[str] = []
    due: dict[str, int] = {}
    requests: list[OpenRequest] = []
    asked: int = 0
    unexpected: list[Unexpected] = []
    passed_over: int = 0
    aborted: str = ""

    def next_due(self) -> int | None:
        """When the first of its times comes; None if there is none."""
        times = [*self.due.values()]
        for one in self.requests:
            times.append(one.until if one.again is None else min(one.until, one.again))
        return min(times, default=None)

    def timeouts(self) -> list[tuple[int, str]]:
        """All timeouts that run, each with the name of its event."""
        due = [(at, name) for name, at in self.due.items()]
        return due + [(one.until, f"{one.name}.timed_out") for one in self.requests]

    def close(self, request: str) -> None:
        """Give up a request, if it is open."""
        self.requests = [one for one in self.requests if one.name != request]


def request_id(process: bytes, number: int, name: str) -> str:
    """The id of the request of that name which is the ``number``-th of its flow."""
    return f"{id_text(process)}/{number}/{name}"


def process_of(id: str) -> str:
    """The id of the process whose request has this id, for :meth:`Engine.process`: who answers need know no more.

    Raises InvalidInput if it is not the id of a request.
    """
    process, _, rest = id.partition("/") if isinstance(id, str) else ("", "", "")
    if not rest:
        raise InvalidInput(f"{id!r:.100} is not the id of a flow's request. Answer with the id that the request had.")
    id_bytes(process)
    return process
