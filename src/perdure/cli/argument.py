"""An argument: what a person typed, read as the type that the workflow asks for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

import msgspec

from perdure.authoring.workflow import Workflow
from perdure.errors import InvalidInput, PayloadError
from perdure.kernel.payload import decode


def arguments(workflow: Workflow[Any, Any], texts: Sequence[str]) -> list[Any]:
    """The typed texts as the workflow's positional arguments; raises InvalidInput or PayloadError."""
    names = [
        name
        for name, one in inspect.signature(workflow.function).parameters.items()
        if one.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(texts) > len(names):
        raise InvalidInput(
            f"{workflow.name} takes {len(names)} arguments ({', '.join(names) or 'none'}), but {len(texts)} were given"
        )
    hints = get_type_hints(workflow.function, include_extras=True)
    return [_read(name, hints.get(name, Any), text) for name, text in zip(names, texts, strict=False)]


def whole_input(workflow: Workflow[Any, Any], raw: str) -> tuple[list[Any], dict[str, Any]]:
    """A JSON array (arguments by place) or object (by name) as the workflow's arguments."""
    return workflow.shape.decode(typed(raw.strip()))


def typed(text: str) -> bytes:
    """What was typed, as bytes; raises InvalidInput if it was not typed in UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r:.80} holds bytes that are no UTF-8; set the terminal to UTF-8") from None


def plain(text: str) -> Any:
    """JSON if the text is JSON, otherwise the text itself."""
    try:
        return decode(typed(text))
    except PayloadError:
        return text


def _read(name: str, hint: Any, text: str) -> Any:
    """First as JSON, then as text; where a text is asked for, what was typed is the text."""
    forms = [typed(text), msgspec.json.encode(text)]
    refusals = []
    for raw in reversed(forms) if hint is str else forms:
        try:
            return decode(raw, hint, what=f"argument {name!r}")
        except PayloadError as error:
            refusals.append(error)
    raise refusals[0]
