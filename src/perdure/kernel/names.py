"""Names: which keys and names are accepted, and how ids are written as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from unicodedata import is_normalized

from perdure.errors import InvalidKey
from perdure.kernel.plain import shown
from perdure.limits import KEY_BYTES, NAME_BYTES

LIBRARY = "perdure/"
"""The kinds of the library's own machines and workflows begin so: every worker serves them."""
OPERATION = f"{LIBRARY}operation"
"""The kind of mass operations; both stores have an index of such processes."""
DEBOUNCED = " "
"""The stored key of a process that waits for debounced starts begins so; no key that anybody gives does."""
_ID = r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}"


def check_key(key: str, what: str = "the key") -> str:
    """``key`` if it is fit to name a process or a message; raises InvalidKey."""
    return _check(key, what, KEY_BYTES)


def is_debounced(key: str | None) -> bool:
    """Whether a stored key is that of a process which waits for debounced starts."""
    return key is not None and key.startswith(DEBOUNCED)


def check_name(name: str, what: str = "the name") -> str:
    """``name`` if it is fit to name a kind, a step or a signal; raises InvalidKey."""
    return _check(name, what, NAME_BYTES)


def is_made_of(text: str, parts: Sequence[str]) -> bool:
    """Whether the text consists of these parts with any letters between them: a pattern, cut at each ``*``.

    It looks for one part after the other. A regular expression would try again from every place: with some stars,
    seconds for a single text.
    """
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def near(name: str, known: Iterable[str]) -> str:
    """A sentence that offers the names that look like one that is not known; empty if there is none."""
    from difflib import get_close_matches  # here: a worker that makes no such mistake needs none of it

    close = get_close_matches(name, known, 3)
    return f" Did you mean {', '.join(map(repr, close))}?" if close else ""


def no_such_method(whose: str, name: str, known: Iterable[str]) -> str:
    """What is said of a method that is none of those which can be called or told something."""
    return f"{whose} has no method {name!r} that can be called.{near(name, known)}"


def _check(text: str, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidKey(f"{what} is a value of type {type(text).__name__}. Pass a text.")
    if text.isascii() and text.isprintable() and 0 < len(text) <= limit and text[0] != " " != text[-1]:
        return text
    if not text:
        raise InvalidKey(f"{what} is empty. Pass a text of 1 to {limit} bytes.")
    shown = ascii(text[:60])
    for place, letter in enumerate(text):
        if not letter.isprintable():
            raise InvalidKey(
                f"{what} {shown} holds the unprintable character U+{ord(letter):04X} at position {place}. Remove it."
            )
    if text[0] == " " or text[-1] == " ":
        raise InvalidKey(f"{what} {shown} begins or ends with a space. Use text.strip().")
    if not is_normalized("NFC", text):
        raise InvalidKey(f"{what} {shown} is not in Unicode form NFC. Use unicodedata.normalize('NFC', text).")
    size = len(text.encode())
    if size > limit:
        raise InvalidKey(f"{what} {shown} takes {size} bytes, over the limit of {limit}. Shorten it, or use its hash.")
    return text


def id_text(id: bytes) -> str:
    """An id as people see it: ``0192f0c1-2b3c-7def-8123-456789abcdef``."""
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes:
    """The 16 bytes of an id given as text; raises InvalidKey."""
    if not isinstance(text, str) or not re.fullmatch(_ID, text):
        raise InvalidKey(f"{shown(text)} is not a process id. Copy it from `perdure ps`, or use the key.")
    return bytes.fromhex(text.replace("-", ""))
