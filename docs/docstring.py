"""Docstrings as the documentation site shows them: references and examples of reStructuredText become Markdown."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):`~?\.?([^`]+)`")
_CODE = re.compile(r"(?<!`)``([^`\n]+)``(?!`)")
_BLOCK = re.compile(r"^::\n\n((?:    [^\n]*\n|\n)+)", re.MULTILINE)


class Markdown(Extension):
    """Rewrites each docstring before it is rendered."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Take the docstring of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """References and names as code, and what stands below a line of ``::`` as a block."""
    text = _BLOCK.sub(lambda found: f"```text\n{dedent(found[1]).rstrip()}\n```\n\n", f"{text}\n")
    text = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", text)
    return _CODE.sub(r"`\1`", text).rstrip()
