"""Declared errors: classes that a step names with ``raises=``, so that the workflow can catch them by their own names.

Of an error only its text and the name of the declared class are recorded. The workflow gets an instance of a class that
derives from both StepError and the declared class. Nothing is unpickled, no record says what to import, and the
instance is made without the declared class's ``__init__``: its arguments were not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from perdure.errors import DefinitionError, PerdureError, Permanent, StepError
from perdure.kernel.plain import shown

Declared: TypeAlias = Mapping[str, type[Exception]]
"""The classes that a step declares, by their names."""

NOTHING: Declared = MappingProxyType({})
"""The declaration of a step that names no class."""

_rebuilt: dict[tuple[type[StepError], type[Exception]], type[StepError]] = {}
_UNFIT = (BaseExceptionGroup, StopIteration, StopAsyncIteration)


def declared(classes: Any, owner: str) -> Declared:
    """The classes that ``owner`` declares; raises DefinitionError if the workflow could not get one of them."""
    found: dict[str, type[Exception]] = {}
    for one in classes if isinstance(classes, tuple | list) else (classes,):
        _check(one, owner)
        if found.setdefault(one.__name__, one) is not one:
            raise DefinitionError(f"{owner} raises two classes called {one.__name__!r}. Rename one of them.")
    return found


def name_among(error: BaseException, classes: Declared) -> str:
    """The name of the declared class that fits the error best; empty if none does."""
    return next((one.__name__ for one in type(error).__mro__ if classes.get(one.__name__) is one), "")


def rebuilt(base: type[StepError], own: type[Exception]) -> type[StepError]:
    """The class of the error for the workflow, derived from both; raises TypeError if there can be none."""
    if issubclass(base, own):
        return base
    if (base, own) not in _rebuilt:
        _rebuilt[base, own] = _both(base, own)
    return _rebuilt[base, own]


def _both(base: type[StepError], own: type[Exception]) -> type[StepError]:
    around = {
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__doc__": own.__doc__,
        "__new__": _made,
        "__getattr__": _unrecorded,
        **{method: getattr(Exception, method) for method in ("__eq__", "__hash__", "__repr__", "__setattr__")},
    }
    made: type[StepError] = type(own.__name__, (base, own), around)
    return made


def _check(one: Any, owner: str) -> None:
    if not (isinstance(one, type) and issubclass(one, Exception)):
        raise DefinitionError(f"{owner} has raises={shown(one)}. Give an error class, or a tuple of them.")
    if issubclass(one, PerdureError) and not issubclass(one, Permanent):
        raise DefinitionError(
            f"{owner} raises {one.__name__}, which Perdure itself raises. Declare an error class of your own."
        )
    try:
        if issubclass(one, _UNFIT):
            raise TypeError("a future cannot hold it")
        rebuilt(StepError, one)
    except TypeError as error:
        raise DefinitionError(
            f"{owner} raises {one.__name__}, which cannot be given to a workflow: {error}. "
            "Declare an ordinary error class."
        ) from error


def _made(cls: type[StepError], *args: object, **kwargs: object) -> StepError:
    builtin: Any = cls.__base__  # the base that decides the layout in memory
    while builtin.__module__ != "builtins":
        builtin = builtin.__base__
    made: StepError = builtin.__new__(cls)
    return made


def _unrecorded(self: StepError, name: str) -> Any:
    raise AttributeError(
        f"{type(self).__name__}.{name} was not recorded: only the class and the text of a step's error are. "
        "If the workflow needs more, let the step return it as its result."
    )
