"""An incarnation: the identity of a worker from its enlisting to its end; one OS process may have several in a row."""

from __future__ import annotations


class Incarnation:
    """Shared by all roles of a worker: when it was ended by others, a new ``id`` takes its place."""

    def __init__(self, id: bytes) -> None:
        self.id = id
