"""A plain value: the tree of dicts, lists, texts and numbers that stands for a typed value in JSON.

The walk that makes it is also the check at the door: whatever JSON would change, merge or lose in silence (NaN, keys
that are no texts, subclasses, endless nesting) is refused here, with the path to it and what to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from inspect import iscoroutine
from math import isfinite
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from perdure.limits import INTEGER_DIGITS, PAYLOAD_DEPTH

# The reader of JSON counts the minus sign as a digit.
_INTEGERS_FROM, _INTEGERS_TO = -(10 ** (INTEGER_DIGITS - 1)), 10**INTEGER_DIGITS
_to_json = msgspec.json.Encoder().encode

SCALARS = frozenset({int, str, bool, float, type(None)})
"""The types that are JSON already and come back as they were."""

_SAFE = frozenset({str, bool, type(None)})
_TEXT = frozenset({str})
_BY_MSGSPEC = (datetime, date, time, timedelta, UUID, bytes, bytearray, memoryview)


SMALL_PARTS = 256
"""A dict or list that holds others is checked without the walk if none of them has more parts than that."""

SMALL_LEVELS = 3
"""And if no more than so many are nested."""


def is_plain(value: Any, kinds: frozenset[Any] = SCALARS) -> bool:
    """Whether a value is a dict or list that is its own plain tree, but for its numbers: see `has_plain_numbers`.

    Its parts are of these ``kinds``; for SCALARS itself they may be small dicts and lists of such parts too.
    """
    if type(value) is dict:
        flat = _TEXT.issuperset(map(type, value)) and kinds.issuperset(map(type, value.values()))
    elif type(value) is list:
        flat = kinds.issuperset(map(type, value))
    else:
        return False
    return flat or (kinds is SCALARS and _is_small(value, SMALL_LEVELS))


def _is_small(value: Any, levels: int) -> bool:
    kind = type(value)
    if kind in SCALARS:
        return True
    if levels == 0 or not (kind is dict or kind is list) or len(value) > SMALL_PARTS:
        return False
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    return SCALARS.issuperset(map(type, value)) or all(_is_small(part, levels - 1) for part in value)


def has_plain_numbers(parts: Iterable[Any]) -> bool:
    """Whether JSON holds every number in these parts of a plain tree as it is."""
    for part in parts:
        kind = type(part)
        if kind is float:
            if not isfinite(part):
                return False
        elif kind is int:
            if not _INTEGERS_FROM < part < _INTEGERS_TO:
                return False
        elif (kind is dict or kind is list) and not has_plain_numbers(part.values() if kind is dict else part):
            return False
    return True


class Refused(Exception):
    """Why a value is refused, and the path to it from the outermost value."""

    def __init__(self, reason: str, remedy: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.too_large = too_large
        self.path: list[str] = []

    def text(self, what: str) -> str:
        """The whole sentence, ending with what to do."""
        where = f" at {''.join(reversed(self.path))}" if self.path else ""
        return f"{what} cannot be stored: {self.reason}{where}. {self.remedy}"


class Walk:
    """One walk over one value; ``room`` bounds the nodes, so that shared parts cannot multiply without end."""

    __slots__ = ("room",)

    def __init__(self, room: int) -> None:
        self.room = room

    def plain(self, value: Any, depth: int = 0) -> Any:
        """The plain tree for ``value``, or :class:`Refused`. ``depth`` counts the containers around it."""
        kind = type(value)
        if kind is str or kind is bool or value is None:
            return value
        if kind is int:
            if _INTEGERS_FROM < value < _INTEGERS_TO:
                return value
            raise Refused(f"an integer has more than {INTEGER_DIGITS:,} digits", "Store it as a text.")
        if kind is float:
            if isfinite(value):
                return value
            raise Refused(f"{shown(value)} is not a number in JSON", "Use None or a text instead.")
        if depth >= PAYLOAD_DEPTH:
            raise Refused(f"it is nested more than {PAYLOAD_DEPTH} levels deep", "Flatten it, or store it as a text.")
        if kind is dict:
            return self._object(value.items(), len(value), depth)
        if kind is list or kind is tuple:
            return self._array(value, len(value), depth)
        return self._other(value, depth)

    def _take(self, nodes: int) -> None:
        self.room -= nodes + 1
        if self.room < 0:
            raise Refused("it is over the size limit", "Store it elsewhere and pass a reference.", too_large=True)

    def _object(self, items: Iterable[tuple[Any, Any]], count: int, depth: int) -> dict[str, Any]:
        self._take(count)
        tree: dict[str, Any] = {}
        key: Any = ""
        try:
            for key, item in items:
                if type(key) is not str:
                    raise Refused(f"the key {shown(key)} is not a text", "Use str(key), or a list of pairs.")
                tree[key] = item if type(item) in _SAFE else self.plain(item, depth + 1)
        except Refused as refusal:
            refusal.path.append(f"[{shown(key)}]")
            raise
        return tree

    def _array(self, items: Iterable[Any], count: int, depth: int) -> list[Any]:
        self._take(count)
        tree: list[Any] = []
        try:
            for item in items:  # one by one: the length of the tree is the index of a refused item
                tree.append(item if type(item) in _SAFE else self.plain(item, depth + 1))
        except Refused as refusal:
            refusal.path.append(f"[{len(tree)}]")
            raise
        return tree

    def _other(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        layout = layout_of(kind)
        if layout is not None:
            return self._fields(value, layout, depth)
        if isinstance(value, Enum):
            return self.plain(value.value, depth)
        if isinstance(value, _BY_MSGSPEC):
            return _exact_text(value)
        if kind is Decimal:
            if value.is_finite():
                return str(value)
            raise Refused(f"{shown(value)} is not a number in JSON", "Use None or a text instead.")
        if isinstance(value, set | frozenset):
            # Sets iterate in another order in each OS process: order them, so that equal sets are equal bytes.
            return sorted(self._array(value, len(value), depth), key=_to_json)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._array(value, len(value), depth)
        if is_model(kind):
            return self.plain(_model_tree(value), depth)
        raise Refused(f"it holds {_described(value)}", _remedy(value))

    def _fields(self, value: Any, layout: Layout, depth: int) -> Any:
        try:
            items = layout.read(value)
        except AttributeError as error:
            raise Refused(f"a field has no value ({error!s:.200})", "Give it one.") from None
        pairs = [pair for pair in zip(layout.names, items, strict=True) if pair[1] is not UNSET]
        if layout.tag is not None:
            pairs.insert(0, layout.tag)
        if layout.array:
            return self._array([item for _, item in pairs], len(pairs), depth)
        return self._object(pairs, len(pairs), depth)


def _exact_text(value: Any) -> Any:
    """The text of a date, time, id or some bytes."""
    if isinstance(value, datetime | time):
        offset = value.utcoffset()
        if offset is not None and offset.total_seconds() % 60:
            raise Refused(f"{shown(value)} has an offset of odd seconds, which its text cannot hold", "Use UTC.")
    return msgspec.to_builtins(value)


def shown(value: Any, letters: int = 80) -> str:
    """The start of ``repr(value)``; never raises, whatever the value's own methods do."""
    try:
        text = repr(value)
    except Exception:  # an integer with too many digits, or a broken __repr__
        return f"a value of type {type(value).__qualname__}"
    return text if len(text) <= letters else text[:letters] + "…"


def _described(value: Any) -> str:
    kind = type(value)
    return f"a value of type {kind.__module__}.{kind.__qualname__}".replace("type builtins.", "type ")


def _remedy(value: Any) -> str:
    if iscoroutine(value) or hasattr(value, "__await__"):
        return "It was probably not awaited: write `await`."
    for base in (dict, list, tuple, str, int, float):
        if isinstance(value, base):
            return f"It would come back as {base.__name__}: convert it first with {base.__name__}(...)."
    return (
        "Use JSON values, dataclasses, msgspec Structs or pydantic models; "
        "pass a reference (a path, an id) for anything else."
    )


class Layout(Struct, frozen=True):
    """How the objects of one class are written: the JSON names of their fields, and how to read those."""

    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    array: bool = False
    tag: tuple[str, Any] | None = None


@lru_cache(maxsize=1024)
def layout_of(kind: Any) -> Layout | None:
    """The layout of a dataclass, a msgspec Struct or an attrs class; None if ``kind`` is none of these, or an Enum."""
    if issubclass(kind, Struct):
        config = kind.__struct_config__
        tag = None if config.tag is None else (config.tag_field or "type", config.tag)
        return Layout(kind.__struct_encode_fields__, _reader(kind.__struct_fields__), config.array_like, tag)
    if issubclass(kind, Enum):
        return None
    if dataclasses.is_dataclass(kind):
        names = tuple(field.name for field in dataclasses.fields(kind))
    elif hasattr(kind, "__attrs_attrs__"):
        names = tuple(attribute.name for attribute in kind.__attrs_attrs__)
    else:
        return None
    return Layout(names, _reader(names))


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def is_model(kind: Any) -> bool:
    """Whether ``kind`` is a pydantic model, recognised by its methods: pydantic itself is not needed."""
    return hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def _model_tree(value: Any) -> Any:
    try:
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    except Exception as error:  # the model's own serializers may raise anything
        raise Refused(f"pydantic could not turn it into JSON ({error!s:.200})", "Correct the model.") from error


def same(value: Any, back: Any) -> bool:
    """Whether ``back``, read from the store, is what ``value`` was: the same types and the same contents.

    A time comes back with its offset and without the name of its zone: it is the same if both show the same.
    """
    kind: Any = value.__class__
    if kind is not back.__class__:
        if kind is int and type(back) in (float, Decimal):
            return bool(value == back)
        return isinstance(value, Enum) and isinstance(value, int | str) and bool(value == back)
    if kind in SCALARS:
        return bool(value == back)
    if kind is list or isinstance(value, tuple):
        return len(value) == len(back) and all(map(same, value, back))
    if kind is dict:
        return len(value) == len(back) and all(key in back and same(item, back[key]) for key, item in value.items())
    layout = layout_of(kind)
    if layout is not None:
        return all(map(same, layout.read(value), layout.read(back)))
    if isinstance(value, datetime | time):
        return _shown_time(value) == _shown_time(back)
    if isinstance(value, set | frozenset):
        return {_comparable(one) for one in value} == {_comparable(one) for one in back}
    return bool(value == back) or (is_model(kind) and all(map(same, _model_parts(value), _model_parts(back))))


def _shown_time(value: datetime | time) -> tuple[datetime | time, timedelta | None]:
    """What a clock shows, and how far it is from UTC. For == no two zones agree in an hour that a clock shows twice."""
    return value.replace(tzinfo=None), value.utcoffset()


def _comparable(value: Any) -> Any:
    return _shown_time(value) if isinstance(value, datetime | time) else value


def _model_parts(model: Any) -> tuple[Any, ...]:
    return vars(model), getattr(model, "__pydantic_extra__", None), getattr(model, "__pydantic_private__", None)
