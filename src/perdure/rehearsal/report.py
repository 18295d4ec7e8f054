"""The report of a rehearsal: how many processes fit the code, and why the others do not, by cause."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Misfit:
    """Processes of one kind and version that do not fit the code for one cause: ``count`` of them.

    ``type`` is the class of the error (``HistoryMisfit``, or what the code raises; ``NotHosted`` if the code at hand
    has no such workflow or version), ``message`` its text without what varies. ``samples`` are the ids of some of them.
    Of the first of these ``example`` is the whole text, ``event`` the number of the last event that fits, 0 if none
    does, and ``step`` the step, timer or message of that event.
    """

    kind: str
    version: str
    type: str
    message: str
    count: int
    samples: list[str]
    example: str
    event: int
    step: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a rehearsal has found: of ``total`` processes these are the ``misfits``, the most frequent cause first."""

    total: int
    misfits: list[Misfit] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether every process fits the code at hand."""
        return not self.misfits

    @property
    def unfit(self) -> int:
        """How many processes do not fit."""
        return sum(one.count for one in self.misfits)

    def check(self) -> None:
        """Raise AssertionError with every cause, unless all processes fit: the last line of a test."""
        if self.misfits:
            raise AssertionError(f"{self.unfit} of {self.total} processes do not fit the code:\n{self}")

    def __str__(self) -> str:
        """One line for each cause."""
        return "\n".join(
            f"{one.count} of {one.kind} {one.version}, such as {one.samples[0]} after event {one.event}: {one.example}"
            for one in self.misfits
        )
