"""A payload: a typed value, or the arguments of a call, as canonical JSON bytes, alike on every store.

No pickle. What JSON would change in silence is refused: see :mod:`perdure.kernel.plain`. A value given with its type
is read back before it is accepted, so that a process finds after a crash exactly what it had before.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Never, NoReturn, get_type_hints

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import astuple

from perdure.errors import DefinitionError, InvalidInput, PayloadError, PayloadTooLarge
from perdure.kernel.names import check_name
from perdure.kernel.plain import SCALARS, Refused, Walk, has_plain_numbers, is_plain, same, shown
from perdure.kernel.reading import (
    NOT_SCALAR,
    changed,
    check_comes_back,
    check_strict,
    checked_type,
    comes_back,
    decode,
    decoder,
    plain_kinds,
    plain_parts,
)
from perdure.kernel.stored import why_undecodable
from perdure.limits import ATTRIBUTES_BYTES, INTEGER_DIGITS, PAYLOAD_BYTES, PAYLOAD_DEPTH

__all__ = ["CallShape", "decode", "digest", "encode", "encode_attributes"]

_to_json = msgspec.json.Encoder().encode
_sorted_json = msgspec.json.Encoder(order="deterministic").encode
_from_json = msgspec.json.Decoder().decode
_parts = msgspec.json.Decoder(dict[str, Raw]).decode
_PLACE = re.compile(r"(?<=at `)\$\[(\d+)\](.*)")
_KNOWN_AT_MOST = 256
_BRACE = ord("{")  # a byte is found ten times faster than bytes are
_NONE: dict[str, Any] = {}
_CONTAINERS = frozenset({dict, list})


class Unchecked:
    """Stands for the type of a value whose reader is not known where it is written."""


def encode(value: Any, *, type: Any = Unchecked, limit: int = PAYLOAD_BYTES, what: str = "the value") -> bytes:
    """The canonical JSON of ``value``, at most ``limit`` bytes; raises PayloadError or PayloadTooLarge.

    With ``type``, the value must come back from it as it was; without, its reader must ask for the fitting type.
    """
    kind = value.__class__
    if kind in SCALARS and (type is kind or type is Unchecked or kind in plain_kinds(type)):
        if kind is str and len(value) > limit:
            raise _too_large(what, len(value), limit)
        try:
            raw = _to_json(value)
        except ValueError:  # a lone surrogate, or an integer beyond the interpreter's digits
            return _write(value, limit, what)
        # msgspec writes NaN as null.
        if len(raw) <= limit and (kind is str or len(raw) <= INTEGER_DIGITS) and (kind is not float or raw != b"null"):
            return raw
        return _write(value, limit, what)
    at_once = _at_once(value, (value,), limit) if is_plain(value) else None
    raw = at_once or _write(value, limit, what)
    if type is not Unchecked and not (at_once and comes_back(value, plain_parts(type))):
        check_comes_back(value, raw, type, what)
    return raw


def _at_once(value: Any, parts: Iterable[Any], limit: int) -> bytes | None:
    """The JSON of a value whose parts are plain but for their numbers; None if only the walk can say what is wrong."""
    try:
        raw = _to_json(value)
    except (ValueError, TypeError):  # a lone surrogate, too many digits, or a change by another thread
        return None
    # msgspec writes NaN as null.
    if (len(raw) > INTEGER_DIGITS or b"null" in raw) and not has_plain_numbers(parts):
        return None
    return raw if len(raw) <= limit else None


def _write(value: Any, limit: int, what: str) -> bytes:
    try:
        raw = _to_json(Walk(limit).plain(value))
    except Refused as refusal:
        raise _refused(refusal, what) from None
    except UnicodeEncodeError:
        raise _surrogate(what) from None
    if len(raw) > limit:
        raise _too_large(what, len(raw), limit)
    return raw


def encode_attributes(attributes: Mapping[str, Any]) -> bytes:
    """The JSON of search attributes: names with single values that every database can index and compare alike."""
    for name, value in attributes.items():
        check_name(name, "the name of an attribute")
        kind = type(value)
        fits = kind in SCALARS and not (kind is str and "\0" in value) and not (kind is int and abs(value) >= 2**63)
        if not fits:
            raise PayloadError(
                f"attribute {name!r} is {shown(value)}, which not every database can compare. "
                "Use a text without NUL, a bool, a number below 2**63, or None."
            )
    return encode(dict(attributes), limit=ATTRIBUTES_BYTES, what="the attributes")


def digest(raw: bytes) -> bytes:
    """Eight bytes that name these arguments; the order of an object's keys does not count."""
    return _name_of(_sorted_json(_from_json(raw)) if _BRACE in raw else raw)


def _name_of(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=8).digest()


def _refused(refusal: Refused, what: str) -> PayloadError:
    return (PayloadTooLarge if refusal.too_large else PayloadError)(refusal.text(what))


def _surrogate(what: str) -> PayloadError:
    return PayloadError(
        f"{what} cannot be stored: a text holds a lone surrogate, which is half a character. "
        "Decode its source with errors='replace', or store it as bytes."
    )


def _too_large(what: str, size: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what} takes {size:,} bytes, over the limit of {limit:,}. "
        "Store it elsewhere and pass a reference (a path, an id)."
    )


class CallShape:
    """How calls of one function are stored; made once, when the function is defined.

    A call is a JSON array of the positional values, ``["A-17", 1299]``; if some can only be given by name, an object
    of the names, in which the empty name holds the array: ``{"": ["A-17"], "gift": true}``. What the caller left out
    is left out, so a new parameter with a default changes no recorded call.

    Raises DefinitionError if the signature has ``*args`` or ``**kwargs``, or a type that JSON cannot hold.
    """

    __slots__ = (
        "_array",
        "_fewest",
        "_known",
        "_order",
        "_parts",
        "_plain",
        "_result",
        "_result_kinds",
        "_result_of",
        "_signature",
        "_types",
        "name",
        "result_type",
    )

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name: str = getattr(function, "__qualname__", repr(function))
        self._signature, hints = _signature(function, self.name)
        self._types: dict[str, Any] = {}
        self._order: list[str] = []
        self._fewest = 0
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DefinitionError(
                    f"{self.name} takes {parameter}, whose values have no types. Name each parameter instead."
                )
            self._types[name] = checked_type(hints.get(name, Any), f"parameter {name!r} of {self.name}")
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self._order.append(name)
                self._fewest += parameter.default is parameter.empty
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in self._signature.parameters.values()):
            self._fewest = len(self._order) + 1  # never bound by position alone
        result = hints.get("return", Any)
        if result in (Never, NoReturn):
            result = None
        self._result = f"the result of {self.name}"
        self.result_type: Any = checked_type(result, self._result)
        self._result_of = decoder(self.result_type)
        self._result_kinds = plain_kinds(result)
        self._plain = {name: plain_kinds(type) for name, type in self._types.items()}
        self._parts = {name: plain_parts(type) for name, type in self._types.items()}
        self._known: dict[tuple[type, ...], bool] = {}
        fields = [(f"_{place}", self._types[name], UNSET) for place, name in enumerate(self._order)]
        array = msgspec.defstruct("Arguments", fields, array_like=True, forbid_unknown_fields=True, gc=False)
        self._array = decoder.__wrapped__(array)  # a type of its own: not worth a place in the cache

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any] = _NONE) -> bytes:
        """The payload of a call; raises InvalidInput if it does not fit the signature, PayloadError if not JSON."""
        return self._quick(args, kwargs) or self._small(args, kwargs) or self._slow(args, kwargs)[0]

    def copy(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] = _NONE
    ) -> tuple[bytes, bytes, Sequence[Any], Mapping[str, Any]]:
        """The payload of a call, its digest, and arguments that share nothing changeable with the caller's."""
        raw = self._quick(args, kwargs)
        if raw is not None:
            return raw, _name_of(raw), args, kwargs
        raw = self._small(args, kwargs)
        if raw is not None:
            return raw, _name_of(_sorted_json(args)), _from_json(raw), kwargs
        raw, args, kwargs = self._slow(args, kwargs)
        return raw, digest(raw), args, kwargs

    def decode(self, raw: bytes, *, ours: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that ``raw`` holds, typed by the signature; raises PayloadError if they do not fit it.

        ``ours`` says that this program has just written it, so that it is strict JSON.
        """
        call = self._read(raw)
        if not ours and (len(raw) > PAYLOAD_DEPTH or _BRACE in raw):
            check_strict(raw, self._what, PAYLOAD_DEPTH + 2)
        return call

    def _read(self, raw: bytes) -> tuple[list[Any], dict[str, Any]]:
        try:
            if raw[:1] == b"[":
                positional = [value for value in astuple(self._array(raw)) if value is not UNSET]
                named: dict[str, Any] = {}
            else:
                positional, named = self._read_names(raw)
            if named or len(positional) < self._fewest:
                self._signature.bind(*positional, **named)
        except (PayloadError, MemoryError):
            raise
        except Exception as error:  # a type's own __post_init__ or validator may raise anything
            why = why_undecodable(raw)
            if why is not None:
                raise why from None
            said = _PLACE.sub(lambda found: self._order[int(found[1])] + found[2], f"{error!s:.500}")
            raise PayloadError(
                f"{self._what} do not fit its signature {self._signature}: {said}. "
                "Correct them, or bring back code that fits them."
            ) from error
        return positional, named

    def encode_result(self, value: Any, *, limit: int = PAYLOAD_BYTES) -> bytes:
        """The payload of a result; raises PayloadError if it would not come back as the annotation says."""
        type = Unchecked if value.__class__ in self._result_kinds else self.result_type
        return encode(value, type=type, limit=limit, what=self._result)

    def decode_result(self, raw: bytes, *, ours: bool = False) -> Any:
        """The result that ``raw`` holds, typed by the annotation; raises PayloadError if it does not fit it.

        ``ours`` says that this program has just written it, so that it is strict JSON.
        """
        if ours or raw[0] not in NOT_SCALAR:
            try:
                return self._result_of(raw)
            except Exception:  # decode() says below what does not fit, and why
                pass
        return decode(raw, self.result_type, what=self._result)

    def digest(self, raw: bytes) -> bytes:
        """Eight bytes that name these arguments; the order of an object's keys does not count."""
        return digest(raw)

    @property
    def _what(self) -> str:
        return f"the arguments of {self.name}"

    def _quick(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
        """The payload of a call with plain values of kinds seen before, or None."""
        with_floats = self._known.get((*map(type, args),))
        if with_floats is None or kwargs:
            return None
        try:
            raw = _to_json(args)
        except ValueError:  # a lone surrogate, or an integer beyond the interpreter's digits
            return None
        # msgspec writes NaN as null.
        return raw if len(raw) <= INTEGER_DIGITS and not (with_floats and b"null" in raw) else None

    def _small(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
        """The payload of a call with small plain dicts and lists, or None."""
        if kwargs or _CONTAINERS.isdisjoint(map(type, args)) or not self._fewest <= len(args) <= len(self._order):
            return None
        for name, value in zip(self._order, args, strict=False):
            if type(value) not in self._plain[name] and not (is_plain(value) and comes_back(value, self._parts[name])):
                return None
        return _at_once(args, args, PAYLOAD_BYTES)

    def _slow(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bytes, list[Any], dict[str, Any]]:
        """The payload and copies of the arguments, after every check."""
        positional, named = self._bind(args, kwargs)
        raw = self._write(positional, named)
        kinds = (*map(type, positional),)
        if self._all_plain(zip(self._order, positional, strict=False)) and self._all_plain(named.items()):
            if len(self._known) < _KNOWN_AT_MOST and len(positional) >= self._fewest:
                self._known[kinds] = float in kinds
            return raw, positional, named
        back, back_named = self._read(raw)
        for name, value, read in zip(self._order, positional, back, strict=False):
            self._compare(name, value, read)
        for name, value in named.items():
            self._compare(name, value, back_named[name])
        return raw, back, back_named

    def _all_plain(self, values: Iterable[tuple[str, Any]]) -> bool:
        return all(value.__class__ in self._plain[name] for name, value in values)

    def _compare(self, name: str, value: Any, back: Any) -> None:
        if not same(value, back):
            raise changed(value, back, self._types[name], f"argument {name!r} of {self.name}")

    def _write(self, positional: list[Any], named: dict[str, Any]) -> bytes:
        name = ""
        walk = Walk(PAYLOAD_BYTES)
        try:
            array = []
            for name, value in zip(self._order, positional, strict=False):  # noqa: B007 (named in the refusal)
                array.append(walk.plain(value))
            tree: dict[str, Any] = {"": array} if array else {}
            for name, value in named.items():
                tree[name] = walk.plain(value)
            raw = _to_json(tree if named else array)
        except Refused as refusal:
            raise _refused(refusal, f"argument {name!r} of {self.name}") from None
        except UnicodeEncodeError:
            raise _surrogate(self._what) from None
        if len(raw) > PAYLOAD_BYTES:
            raise _too_large(self._what, len(raw), PAYLOAD_BYTES)
        return raw

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if not kwargs and self._fewest <= len(args) <= len(self._order):
            return list(args), {}
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(f"{self.name} takes {self._signature}: {error}. Call it with these.") from None
        positional = []
        for name in self._order:
            if name not in bound:
                break
            positional.append(bound.pop(name))
        return positional, bound

    def _read_names(self, raw: bytes) -> tuple[list[Any], dict[str, Any]]:
        parts = _parts(raw)
        array = parts.pop("", None)
        positional: list[Any] = []
        if array is not None:
            positional = [value for value in astuple(self._array(bytes(array))) if value is not UNSET]
        unknown = sorted(parts.keys() - self._types.keys())
        if unknown:
            raise ValueError(f"there is no parameter {shown(unknown[0])}")
        return positional, {
            name: decode(bytes(part), self._types[name], what=f"argument {name!r} of {self.name}")
            for name, part in parts.items()
        }


def _signature(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        return inspect.signature(function), get_type_hints(function, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"the annotations of {name} name {error.name!r}, which is not known where it is defined. "
            "Define or import that type above it, at the top of the module."
        ) from error
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{name} has no readable signature: {error}. Use a plain function.") from error
