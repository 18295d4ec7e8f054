"""A reading: strict JSON turned into a typed value, or a refusal that says what does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import MsgspecError
from msgspec.inspect import CustomType, Field, Type, type_info

from perdure.errors import DefinitionError, PayloadError
from perdure.kernel.plain import SCALARS, Refused, Walk, same, shown
from perdure.kernel.stored import why_undecodable
from perdure.limits import PAYLOAD_DEPTH

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode
NOT_SCALAR = frozenset(b"[{ \t\r\n")
"""The first bytes of JSON that may hold more than one value."""

_Class = type
_ENUMS = "Give the members of the enum only texts, or only integers below 2**63."


def decode(raw: bytes, type: Any = Any, *, what: str = "the value", ours: bool = False) -> Any:
    """The value that ``raw`` holds, as ``type``; raises PayloadError if it does not fit or is not strict JSON.

    ``ours`` says that this program has just written it, so that it is strict.
    """
    value = _read(raw, type, what)
    if not ours and raw[0] in NOT_SCALAR and not _has_no_twins(raw, value):
        check_strict(raw, what)
    return value


def _has_no_twins(raw: bytes, value: Any) -> bool:
    """Whether ``raw``, which holds ``value``, is seen at a glance to be one object that names each key once.

    Each key is followed by a colon, and the dict has all of them: it has as many keys as there are colons.
    """
    return value.__class__ is dict and raw.count(b":") == len(value) and raw.count(b"{") == 1 and b"[" not in raw


def _read(raw: bytes, type: Any, what: str) -> Any:
    try:
        return _from_json(raw) if type is Any else decoder(type)(raw)
    except MemoryError:
        raise  # it says nothing about the payload
    except Exception as error:  # a type's own __post_init__ or validator may raise anything
        why = why_undecodable(raw)
        if why is not None:
            raise why from None
        raise PayloadError(
            f"{what} cannot be read as {named(type)}: {error!s:.500}. "
            "Correct the value, or bring back a type that fits it."
        ) from error


def check_strict(raw: bytes, what: str, depth: int = PAYLOAD_DEPTH) -> None:
    """Raise PayloadError if an object in ``raw`` names a key twice or it is nested more than ``depth`` levels."""
    objects = raw.count(b"{")
    try:
        if objects + raw.count(b"[") > depth:
            Walk(len(raw) + 1).plain(_from_json(raw), PAYLOAD_DEPTH - depth)
        # Our own JSON stays the same if it is read and written again; only other JSON needs the slow look for twins.
        if objects and _to_json(_from_json(raw)) != raw:
            json.loads(raw, object_pairs_hook=lambda pairs: _without_twins(pairs, what))
    except Refused as refusal:
        raise PayloadError(refusal.text(what)) from None
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in parts that the type ignores
        raise PayloadError(f"{what} cannot be read: {error!s:.500}. Correct the value.") from error


def _without_twins(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise PayloadError(f"{what} names the key {shown(twin)} twice in one object. Keep one of the two.")
    return tree


def read_back(value: Any, raw: bytes, type: Any, what: str) -> Any:
    """``raw``, which was just written, read as ``type``; raises PayloadError unless that is what ``value`` was."""
    back = _read(raw, type, what)
    if not same(value, back):
        raise changed(value, back, type, what)
    return back


def changed(value: Any, back: Any, type: Any, what: str) -> PayloadError:
    """The error for a value that its declared type would give back as something else."""
    return PayloadError(
        f"{what} would not come back from the store as it was: {shown(value, 200)} would be {shown(back, 200)}. "
        f"Annotate the exact type where it is declared (now {named(type)}), or convert the value first."
    )


@lru_cache(maxsize=512)
def decoder(type: Any) -> Callable[[bytes], Any]:
    """The reader for one type; raises TypeError if nothing of that type can be read from JSON."""
    return msgspec.json.Decoder(type, dec_hook=_read_model).decode


def _read_model(kind: Any, tree: Any) -> Any:
    """Read what msgspec does not know: models with ``model_validate_json`` (pydantic)."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return validate(_to_json(tree))
    if kind is object:
        return tree
    raise TypeError(f"{named(kind)} cannot be read from JSON")


def checked_type(type: Any, what: str) -> Any:
    """``type``, or DefinitionError if no value of that type can be read from JSON."""
    try:
        decoder(type)
        strange = _strange(type_info(type), set())
    except (TypeError, ValueError, NameError, NotImplementedError) as error:
        advice = _ENUMS if "Enum" in str(error) else "Annotate a simpler type."
        raise DefinitionError(f"{what} cannot be read from JSON: {error!s:.500}. {advice}") from error
    if strange is not None:
        raise DefinitionError(
            f"{what} is annotated {named(strange)}, which cannot be read from JSON. "
            "Use JSON values, dataclasses, msgspec Structs or pydantic models."
        )
    return type


@lru_cache(maxsize=512)
def check_receivable(type: Any) -> None:
    """Raise DefinitionError if no message can be read as that type; each type is checked once."""
    checked_type(type, "the type given to receive")


def _strange(node: Any, seen: set[int]) -> Any:
    """The first type inside a described type that cannot be read, or None."""
    if id(node) in seen:
        return None
    seen.add(id(node))
    if isinstance(node, CustomType):
        known = node.cls is object or hasattr(node.cls, "model_validate_json")
        return None if known else node.cls
    for part in [getattr(node, name) for name in node.__struct_fields__]:
        for one in part if isinstance(part, tuple) else (part,):
            if isinstance(one, Type | Field):
                strange = _strange(one, seen)
                if strange is not None:
                    return strange
    return None


@lru_cache(maxsize=512)
def plain_kinds(type: Any) -> frozenset[Any]:
    """The plain classes whose values come back from ``type`` as they were, so that no check is needed."""
    if type is Any or type is object:
        return SCALARS
    if type in SCALARS:
        return frozenset({type})
    if type is None:
        return frozenset({NoneType})
    if get_origin(type) in (Union, UnionType):
        return frozenset(kind for one in get_args(type) for kind in plain_kinds(one))
    return frozenset()


@lru_cache(maxsize=512)
def plain_parts(type: Any) -> Mapping[Any, frozenset[Any]]:
    """The containers that come back from ``type`` as they were if all their parts are of these kinds.

    SCALARS itself stands for parts of every kind, as long as they are plain.
    """
    if type is Any or type is object:
        return {dict: SCALARS, list: SCALARS}
    if get_origin(type) in (Union, UnionType):
        return {kind: kinds for one in get_args(type) for kind, kinds in plain_parts(one).items()}
    kind = get_origin(type) or type
    if kind is not dict and kind is not list:
        return {}
    *keys, part = get_args(type) or (Any,)
    return {kind: plain_kinds(part)} if keys in ([], [str], [Any]) else {}


def named(type: Any) -> str:
    """A type as its user wrote it."""
    return type.__qualname__ if isinstance(type, _Class) else str(type).replace("typing.", "")
