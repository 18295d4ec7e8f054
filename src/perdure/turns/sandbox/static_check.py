"""Purity: finds in workflow code, and in the functions that it names, calls of the clock that no turn can answer.

``datetime.now()`` reads the clock inside C, where no gate can stand; a function taken out of its module before the
gates were built goes around them. Both are found when the workflow is defined, by reading its code.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from types import CodeType, FunctionType, ModuleType

from perdure.errors import DefinitionError
from perdure.turns.sandbox import overrides
from perdure.turns.sandbox.mentions import mentions

_READERS = frozenset({"now", "today", "utcnow"})


def check(function: FunctionType, what: str) -> None:
    """Raise DefinitionError if the function, or one of the user's own functions that it names, reads the clock."""
    for reader, call in _faults(function):
        where = f"{reader.co_qualname} ({reader.co_filename}:{reader.co_firstlineno})"
        raise DefinitionError(
            f"{what} would differ at every replay: {where} uses {call}. "
            f"Use perdure.now(), perdure.random_source() or perdure.new_uuid(), name the module, or use a step."
        )


def _faults(function: FunctionType) -> Iterator[tuple[CodeType, str]]:
    bypasses = {id(original): name for original, name in overrides.originals()}
    for code, owner, name, value in mentions(function):
        if isinstance(owner, type) and issubclass(owner, date) and name in _READERS:
            yield code, f"{owner.__name__}.{name}()"
        elif not isinstance(owner, ModuleType) and id(value) in bypasses:
            yield code, f"{bypasses[id(value)]}() without naming its module there, so that no turn can answer it"
