"""The static check: finds in workflow code, and in the functions that it names, what no turn can answer or refuse.

``datetime.now()`` reads the clock inside C, where nothing can be overridden; a function that was imported from its
module before the overrides were installed bypasses them; the use of an open resource causes no audit event. All are
found when the workflow is defined, by reading its code.
"""

from __future__ import annotations

from datetime import date
from types import CodeType, FunctionType, ModuleType

from perdure.errors import DefinitionError
from perdure.turns.sandbox import overrides, resources
from perdure.turns.sandbox.mentions import Meanings, is_users, mentions

READERS = frozenset({"now", "today", "utcnow"})
"""The methods of dates that read the clock."""


def check(function: FunctionType, what: str, meanings: Meanings | None = None) -> list[FunctionType]:
    """Raise DefinitionError if the function, or one of the user's own that it names, cannot be workflow code.

    That is so if it reads the clock, or names a resource that is open already. Returns all functions that were read;
    what their names mean is added to ``meanings``.
    """
    bypasses = overrides.originals()
    read = {function.__code__: function}
    for code, owner, name, value in mentions(function, meanings):
        if isinstance(owner, type) and issubclass(owner, date) and name in READERS:
            raise _refusal(what, code, f"{owner.__name__}.{name}()")
        if (why := resources.refused(name, value)) is not None:
            raise _refusal(what, code, why[1], why[0])
        if not isinstance(owner, ModuleType) and id(value) in bypasses:
            call = f"{bypasses[id(value)]}() without naming its module there, so that no turn can answer it"
            raise _refusal(what, code, call)
        if isinstance(value, FunctionType) and is_users(value):
            read[value.__code__] = value
    return list(read.values())


def _refusal(what: str, reader: CodeType, use: str, why: str = resources.DIFFERS) -> DefinitionError:
    where = f"{reader.co_qualname} ({reader.co_filename}:{reader.co_firstlineno})"
    advice = "Use perdure.now(), perdure.random_source() or perdure.new_uuid(), name the module, or use a step."
    if why == resources.IO:
        advice = "Move that into a function marked @step."
    elif use.startswith("os."):
        advice = "Read it when the module is imported, or in a step."
    return DefinitionError(f"{what} {why}: {where} uses {use}. {advice}")
