"""A fingerprint of a workflow's code: two workers with the same one run the same code, as far as its module goes.

It only tells whether another worker is worth waiting for: nothing that is recorded depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from types import CodeType, FunctionType
from typing import Any


def fingerprint(function: Callable[..., Any]) -> str:
    """The fingerprint of a function and of all other functions that its module defines, 16 hexadecimal digits."""
    return next(fingerprints([function]))


def fingerprints(functions: Iterable[Callable[..., Any]]) -> Iterator[str]:
    """The fingerprint of each of these functions. A module is read once for all that it defines."""
    modules: dict[int, tuple[set[CodeType], str]] = {}
    for function in functions:
        around = getattr(function, "__globals__", {})
        if id(around) not in modules:
            codes = _codes(chain.from_iterable(map(_functions, around.values())), around)
            modules[id(around)] = codes, _digest(codes)
        codes, digest = modules[id(around)]
        own = _codes([function], around) - codes
        yield _digest(codes | own) if own else digest


def _codes(members: Iterable[Any], around: Mapping[str, Any]) -> set[CodeType]:
    """The code of those that are functions of this module."""
    return {one.__code__ for one in members if isinstance(one, FunctionType) and one.__globals__ is around}


def _digest(codes: Iterable[CodeType]) -> str:
    digest = blake2b(digest_size=8)
    for text in sorted(map(_told, codes)):
        digest.update(text.encode(errors="backslashreplace"))
    return digest.hexdigest()


def _functions(one: Any) -> Iterable[Any]:
    """The functions that are the code of something in a module."""
    machine = vars(one).get("__machine__") if isinstance(one, type) else None
    return [getattr(one, "function", one)] if machine is None else machine.functions


@lru_cache(maxsize=4096)
def _told(code: CodeType) -> str:
    """Everything that a code object does, in one text; not where it stands in its file."""
    parts = [_told(one) if isinstance(one, CodeType) else _plain(one) for one in code.co_consts]
    return f"{code.co_qualname} {code.co_code.hex()} {code.co_names} {code.co_varnames} [{', '.join(parts)}]"


def _plain(value: object) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
