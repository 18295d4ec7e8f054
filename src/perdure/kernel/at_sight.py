"""At sight: values of dataclasses and Structs that JSON holds as they are, known without making their plain tree.

For a type it is found out once which exact classes its values may be of, and what of their parts must be looked at.
A value that fits is written by msgspec alone, byte for byte as the walk would have it written, and comes back as it
was: so it need not be read and compared. What does not fit is not refused: only the walk can say what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from math import inf, isfinite
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import Struct

from perdure.kernel.plain import SMALL_LEVELS, has_plain_numbers, is_plain
from perdure.limits import INTEGER_DIGITS, PAYLOAD_DEPTH

PartCheck: TypeAlias = Callable[[Any, int], int]
"""Takes a value and how many nodes there may be; answers how many more there may be, below 0 if it does not fit."""

FittingKinds: TypeAlias = Mapping[Any, PartCheck | None]
"""The exact classes of values that fit, each with the check of what it holds, if that matters."""

_to_json = msgspec.json.Encoder().encode
_has_long_number = re.compile(rb"\d{%d}" % (INTEGER_DIGITS - 1)).search
_NOTHING: Final[tuple[FittingKinds, float]] = {}, 0
_UNFIT: Final = -1
_KNOWN_AT_MOST = 256


def at_sight(value: Any, type: Any, limit: int) -> bytes | None:
    """The JSON of a value of that type, at most ``limit`` bytes; None if only the walk can say whether it is sound."""
    kinds, levels = fitting(type)
    return _written(value, ((value, kinds),), levels, limit) if value.__class__ in kinds else None


def all_at_sight(values: Sequence[Any], types: Iterable[Any], limit: int) -> bytes | None:
    """The JSON array of values, each of its type, as `at_sight` gives that of one."""
    fits = [fitting(type) for type, _ in zip(types, values, strict=False)]
    if not all(value.__class__ in kinds for value, (kinds, _) in zip(values, fits, strict=True)):
        return None
    pairs = [(value, kinds) for value, (kinds, _) in zip(values, fits, strict=True)]
    return _written(values, pairs, max((levels for _, levels in fits), default=0), limit)


def _written(whole: Any, parts: Iterable[tuple[Any, FittingKinds]], levels: float, room: int) -> bytes | None:
    """The JSON of a whole, all of whose parts are of a kind that fits; None if one of them does not."""
    limit = room
    try:
        for value, kinds in parts:
            check = kinds[value.__class__]
            if check is not None:
                room = check(value, room)
            if room < 0:
                return None
        raw = _to_json(whole)
    except (ValueError, TypeError, AttributeError, RecursionError):  # half a character, a change by another thread, …
        return None
    if levels > PAYLOAD_DEPTH and raw.count(b"{") + raw.count(b"[") > PAYLOAD_DEPTH:
        return None
    return raw if len(raw) <= limit and (len(raw) < INTEGER_DIGITS or not _has_long_number(raw)) else None


@lru_cache(maxsize=512)
def fitting(type: Any) -> tuple[FittingKinds, float]:
    """What fits a type at sight, and how many levels of containers it has; for a recursive type that is infinite."""
    try:
        return _Finder().of(type)
    except RecursionError:
        return _NOTHING


class _Finder:
    """Finds what fits one type; each class that its values may hold is looked at once, ``open`` are those under way.

    A value of a class that is not among what was found does not fit: so what cannot is left out, wherever it stands.
    """

    def __init__(self) -> None:
        self._open: dict[Any, _Object] = {}
        self._known: dict[Any, tuple[FittingKinds, float]] = {}

    def of(self, type: Any) -> tuple[FittingKinds, float]:
        try:
            if type in _SCALARS:
                return {type: _SCALARS[type]}, 0
        except TypeError:  # it cannot be hashed: no type, or one that is annotated with such a thing
            return _NOTHING
        if type is Any or type is object:
            return _ANY, SMALL_LEVELS + 1
        if type is None:
            return {NoneType: None}, 0
        origin, args = get_origin(type), get_args(type)
        if origin in (Union, UnionType):
            found = [self.of(one) for one in args]
            return {k: check for kinds, _ in found for k, check in kinds.items()}, max(levels for _, levels in found)
        if origin is Literal:
            return {kind: _Choice(args) for kind in {one.__class__ for one in args} & {str, int, NoneType}}, 0
        if origin is list or type is list:
            return self._many(list, _Many, args)
        if origin is tuple and len(args) == 2 and args[1] is ...:
            return self._many(tuple, _Many, args)
        if type is dict or (origin is dict and args[:1] in ((), (str,))):
            return self._many(dict, _Named, args[1:])
        return self._class(type) if isinstance(type, _Class) else _NOTHING

    def _many(self, kind: Any, check: Callable[[FittingKinds], PartCheck], args: Sequence[Any]) -> tuple[Any, float]:
        parts, levels = self.of(args[0] if args else Any)
        return {kind: check(parts)}, levels + 1

    def _class(self, kind: Any) -> tuple[FittingKinds, float]:
        if kind in self._open:
            return {kind: self._open[kind]}, inf
        if kind not in self._known:
            self._known[kind] = self._enum(kind) if issubclass(kind, Enum) else self._object(kind)
        return self._known[kind]

    def _enum(self, kind: type[Enum]) -> tuple[FittingKinds, float]:
        plain = {one.value.__class__ for one in kind} <= {str, int} and not issubclass(kind, Flag)
        return ({kind: None}, 0) if plain else _NOTHING

    def _object(self, kind: Any) -> tuple[FittingKinds, float]:
        if not _is_written_as_it_is(kind):
            return _NOTHING
        try:
            hints = get_type_hints(kind, include_extras=True)
        except Exception:  # an annotation is a text that nothing need have read before, and may hold anything
            return _NOTHING
        names = kind.__struct_fields__ if issubclass(kind, Struct) else [one.name for one in dataclasses.fields(kind)]
        if not names or not hints.keys() >= set(names):
            return _NOTHING
        self._open[kind] = check = _Object(names)
        found = [self.of(hints[name]) for name in names]
        del self._open[kind]
        check.fields = [kinds for kinds, _ in found]
        return {kind: check}, 1 + max(levels for _, levels in found)


_Class = type


def _is_written_as_it_is(kind: Any) -> bool:
    """Whether msgspec writes all fields of an object as the walk does, and reads them without code of the class."""
    if hasattr(kind, "__post_init__"):
        return False
    if issubclass(kind, Struct):
        config = kind.__struct_config__
        return not (config.omit_defaults or config.array_like)
    if not dataclasses.is_dataclass(kind) or kind.__new__ is not object.__new__:
        return False
    return all(one.init for one in dataclasses.fields(kind))


class _Object:
    """The check of an object; ``fields`` are what fits each of its fields. What was seen before is known."""

    __slots__ = ("_known", "_read", "fields")

    def __init__(self, names: Iterable[str]) -> None:
        first, *more = names
        self._read: Callable[[Any], Any] = attrgetter(first, *more) if more else _one(first)
        self._known: dict[tuple[Any, ...], list[tuple[int, PartCheck]]] = {}
        self.fields: list[FittingKinds] = []

    def __call__(self, value: Any, room: int) -> int:
        parts = self._read(value)
        kinds = (*map(type, parts),)
        inside = self._known.get(kinds)
        if inside is None:
            if not all(kind in known for kind, known in zip(kinds, self.fields, strict=True)):
                return _UNFIT
            pairs = enumerate(known[kind] for kind, known in zip(kinds, self.fields, strict=True))
            inside = [(place, check) for place, check in pairs if check is not None]
            if len(self._known) < _KNOWN_AT_MOST:
                self._known[kinds] = inside
        room -= len(parts) + 1
        for place, check in inside:
            if room < 0:
                break
            room = check(parts[place], room)
        return room


def _one(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda value: (getattr(value, name),)


class _Many:
    """The check of a list or tuple whose parts fit these ``kinds``."""

    __slots__ = ("_deep", "_kinds")

    def __init__(self, kinds: FittingKinds) -> None:
        self._kinds = kinds
        self._deep = frozenset(kind for kind, check in kinds.items() if check is not None)

    def __call__(self, value: Any, room: int) -> int:
        room -= len(value) + 1
        kinds = set(map(type, value))
        if room < 0 or not self._kinds.keys() >= kinds:
            return _UNFIT
        if not self._deep.isdisjoint(kinds):
            for part in value:
                check = self._kinds[type(part)]
                if check is not None:
                    room = check(part, room)
                    if room < 0:
                        break
        return room


class _Named(_Many):
    """The check of a dict from texts to values that fit these ``kinds``."""

    __slots__ = ()

    def __call__(self, value: Any, room: int) -> int:
        if not set(map(type, value)) <= _TEXT:
            return _UNFIT
        return super().__call__(value.values(), room)


class _Choice:
    """The check of a value that must be one of a few."""

    __slots__ = ("_choices",)

    def __init__(self, choices: Iterable[Any]) -> None:
        self._choices = frozenset((one.__class__, one) for one in choices)

    def __call__(self, value: Any, room: int) -> int:
        return room if (type(value), value) in self._choices else _UNFIT


def _finite(value: Any, room: int) -> int:
    return room if isfinite(value) else _UNFIT


def _finite_decimal(value: Decimal, room: int) -> int:
    return room if value.is_finite() else _UNFIT


def _whole_minutes(value: datetime, room: int) -> int:
    offset = value.utcoffset()
    return _UNFIT if offset is not None and offset.total_seconds() % 60 else room


def _plain(value: Any, room: int) -> int:
    return room - len(value) if is_plain(value) and has_plain_numbers((value,)) else _UNFIT


_TEXT = frozenset({str})
_SCALARS: Final[FittingKinds] = {
    str: None, bool: None, int: None, NoneType: None, UUID: None, date: None,
    float: _finite, Decimal: _finite_decimal, datetime: _whole_minutes,
}  # fmt: skip
_ANY: Final[FittingKinds] = {
    str: None,
    bool: None,
    int: None,
    NoneType: None,
    float: _finite,
    dict: _plain,
    list: _plain,
}
