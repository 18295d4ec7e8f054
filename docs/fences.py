"""Blocks of code as the documentation site reads them: it takes nothing behind the language, as ``terminal=2``.

A block that it cannot read is no block to it: the headings up to the next block are lost.
"""

from __future__ import annotations

import re
from typing import Any

_OPENING = re.compile(r"^(```\w+) .+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take the text of one page, before it is rendered."""
    return _OPENING.sub(r"\1", markdown)
