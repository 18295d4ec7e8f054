"""Verdicts: what was measured beside what it is measured by, in words, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Verdict:
    """The findings of one load; bounds on times are told, not raised: a busy machine breaks them too."""

    title: str
    lines: list[str] = field(default_factory=list)
    broken: int = 0

    def note(self, text: str) -> None:
        """Something that was counted."""
        self.lines.append(text)

    def bound(self, text: str, figure: float, most: float) -> None:
        """Something that was measured, and the most that it may be."""
        holds = figure <= most
        self.broken += not holds
        self.lines.append(f"{text} {_shown(figure)} (at most {_shown(most)}: {'holds' if holds else 'DOES NOT HOLD'})")

    def __str__(self) -> str:
        return f"{self.title}: " + "; ".join(self.lines)


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def part(values: list[float], share: float = 0.99) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
