"""Plain output: lines of text, which need no library and so cost a worker no memory."""

from __future__ import annotations

import codecs
import re
import shutil
import sys
import textwrap
from typing import Any, TextIO

import msgspec

from perdure.kernel.failure import escaped, safe_text, unsafe

_COMPLAINT_BYTES = 16 * 1024


def columns(stream: TextIO) -> int | None:
    """How many columns the terminal has that shows this stream; None where a program reads it."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def fitted(text: str, width: int | None) -> str:
    """The text with its lines broken between words at the width, if there is one; no word is divided or left out."""
    if width is None:
        return text
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def say(text: str) -> None:
    """Print a sentence at once; it may hold stored text: control characters are shown as their numbers."""
    print(fitted(escaped(text), columns(sys.stdout)), flush=True)


def safe_json(raw: bytes) -> str:
    """JSON with every character that could steer a terminal written as its number, which means the same.

    Where the output is not UTF-8, all that is not ASCII is written so.
    """
    text = unsafe().sub(_number, raw.decode())
    if codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8":
        return text
    return re.sub(r"[^\x00-\x7f]", _number, text)


def _number(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[first : first + 4]}" for first in range(0, len(units), 4))


def complain(text: str) -> None:
    """Say on the error output, in one line, what went wrong and what to do; a terminal gets it broken to its width."""
    line = f"perdure: {safe_text(' '.join(text.split()), _COMPLAINT_BYTES)}"
    print(fitted(line, columns(sys.stderr)), file=sys.stderr)


def show_line(value: Any) -> None:
    """Print a value as one line of JSON at once, for a program that reads line by line."""
    print(safe_json(msgspec.json.encode(value)), flush=True)
