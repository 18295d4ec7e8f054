"""Violations: why a simulated history has failed."""

from __future__ import annotations


class Violation(AssertionError):
    """A law was broken; ``law`` is its name, the text says how."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law
        self.text = text


class Escape(Violation):
    """Code of a history has reached for the real clock, chance, a thread or the network."""

    def __init__(self, text: str) -> None:
        super().__init__("nothing_escapes", text)
