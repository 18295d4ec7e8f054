"""An incarnation: the identity of a worker from its enlisting to its end; one OS process may have several in a row."""

from __future__ import annotations


class Incarnation:
    """Shared by all roles of a worker: when it was ended by others, a new ``id`` takes its place.

    Once it is ``lost`` nothing more is claimed and nobody beats in its name.
    ``hang`` is the evidence of what has blocked its event loop until its lease was lost, until it is written.
    """

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.lost = False
        self.hang: bytes | None = None
