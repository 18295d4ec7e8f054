"""The grace of a blob: how long it is kept although nobody refers to it, since a commit that does may be under way."""

from __future__ import annotations

from perdure.errors import DefinitionError

SHORTEST_GRACE_SECONDS = 3600.0


def checked(grace: float) -> float:
    """``grace`` in seconds, or DefinitionError if it is under an hour: a commit waits while the database is away."""
    if grace < SHORTEST_GRACE_SECONDS:
        raise DefinitionError(
            f"a grace of {grace:g} s could remove what a commit under way refers to. "
            f"Give at least {SHORTEST_GRACE_SECONDS:g} s, or leave it out."
        )
    return grace
