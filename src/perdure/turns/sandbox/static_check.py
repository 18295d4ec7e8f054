"""Purity: finds in workflow code, and in the functions that it names, calls of the clock that no turn can answer.

``datetime.now()`` reads the clock inside C, where no gate can stand; a function taken out of its module before the
gates were built goes around them. Both are found when the workflow is defined, by reading its code.
"""

from __future__ import annotations

from datetime import date
from types import CodeType, FunctionType, ModuleType

from perdure.errors import DefinitionError
from perdure.turns.sandbox import overrides
from perdure.turns.sandbox.mentions import is_users, mentions

_READERS = frozenset({"now", "today", "utcnow"})


def check(function: FunctionType, what: str) -> list[FunctionType]:
    """Raise DefinitionError if the function, or one of the user's own functions that it names, reads the clock.

    The answer is all of these functions.
    """
    bypasses = {id(original): name for original, name in overrides.originals()}
    read = {function.__code__: function}
    for code, owner, name, value in mentions(function):
        if isinstance(owner, type) and issubclass(owner, date) and name in _READERS:
            raise _refusal(what, code, f"{owner.__name__}.{name}()")
        if not isinstance(owner, ModuleType) and id(value) in bypasses:
            call = f"{bypasses[id(value)]}() without naming its module there, so that no turn can answer it"
            raise _refusal(what, code, call)
        if isinstance(value, FunctionType) and is_users(value):
            read[value.__code__] = value
    return list(read.values())


def _refusal(what: str, reader: CodeType, call: str) -> DefinitionError:
    where = f"{reader.co_qualname} ({reader.co_filename}:{reader.co_firstlineno})"
    return DefinitionError(
        f"{what} would differ at every replay: {where} uses {call}. "
        f"Use perdure.now(), perdure.random_source() or perdure.new_uuid(), name the module, or use a step."
    )
