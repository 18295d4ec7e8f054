"""An entry: one place where bytes from outside are read, fed with whatever a fuzzer makes of a few good examples.

What an entry may do with any bytes: take them, and then give back what it took; or refuse them by an error of ours
that says what to do. Everything else is a find: another exception, a value that changes on the way, an endless wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perdure.errors import PerdureError

LONGEST_REFUSAL = 12_000
"""Letters. An error may quote what it refuses, but not without end."""


@dataclass(frozen=True)
class Entry:
    """A name, what is done with the bytes, and examples that lead deep into it."""

    name: str
    feed: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


@contextmanager
def refused(secret: str | None = None) -> Iterator[None]:
    """Let an error of ours pass if it can be shown, says what to do, and does not tell the secret."""
    try:
        yield
    except PerdureError as error:
        text = str(error)
        text.encode()
        if len(text) > LONGEST_REFUSAL:
            raise AssertionError(f"a refusal of {len(text):,} letters: {text[:200]}") from error
        if secret is not None and secret in text:
            raise AssertionError(f"a refusal that tells the password: {text}") from error
        if not any(mark in text for mark in (". ", "; ", ": ")):
            raise AssertionError(f"a refusal that does not say what to do: {text}") from error


def as_text(raw: bytes) -> str:
    """The bytes as a text; what is no UTF-8 becomes half letters, as in arguments and in the environment."""
    return raw.decode("utf-8", "surrogateescape")


def same(value: object, back: object, what: str) -> None:
    """Raise AssertionError unless what came back is what was given."""
    if value != back:
        raise AssertionError(f"{what}: {value!r:.300} came back as {back!r:.300}")
