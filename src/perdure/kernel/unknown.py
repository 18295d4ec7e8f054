"""What this Perdure does not know or cannot read: carried as it stands, shown, and never taken for something else.

What is known is looked up as ever: the tables of the known numbers themselves answer one that is not among them.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")

ENDS_OF_TIME = (-(1 << 63), (1 << 63) - 1)
"""How a store tells a time that is not one (``infinity``), or that is too far away for 64 bits of microseconds."""


class UnknownNumber(int):
    """The number of a type of event or message that this Perdure does not know; no known type is equal to it."""

    @property
    def name(self) -> str:
        """How people see it."""
        return f"UNKNOWN_{int(self)}"


class UnknownStatus(str):
    """A status that this Perdure does not know, as the database has it: its name, or ``7`` where it keeps numbers."""

    @property
    def name(self) -> str:
        """How people see it."""
        return f"UNKNOWN {self}"

    @property
    def value(self) -> str:
        """How it stands where the values of the known ones stand: ``unknown (7)``."""
        return f"unknown ({self})"


class Garbled(str):
    """A text that is not UTF-8; the bytes that cannot be read stand there as numbers."""


class Types(dict[int, T], Generic[T]):
    """The known types by their numbers; every other number is answered as an UnknownNumber.

    ``met`` counts over all tables how often that was so: whoever reads can tell by it that he has met one.
    """

    met = 0

    def __missing__(self, number: int) -> Any:
        Types.met += 1
        return UnknownNumber(number)


class Statuses(dict[Any, T], Generic[T]):
    """The known statuses by what the database has; everything else is answered as an UnknownStatus."""

    def __missing__(self, stored: object) -> Any:
        return UnknownStatus(stored)
