"""A call shape: how the calls of one function, and its results, become payloads and come back typed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Never, NoReturn, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import astuple

from perdure.errors import DefinitionError, InvalidInput, PayloadError
from perdure.kernel.at_sight import all_at_sight
from perdure.kernel.payload import at_once, digest, digest_of, encode, refused, surrogate, too_large
from perdure.kernel.plain import Refused, Walk, has_plain_numbers, is_plain, same, shown
from perdure.kernel.reading import (
    NOT_SCALAR,
    changed,
    check_strict,
    checked_type,
    decode,
    decoder,
    plain_kinds,
    plain_parts,
)
from perdure.kernel.stored import why_undecodable
from perdure.limits import INTEGER_DIGITS, PAYLOAD_BYTES, PAYLOAD_DEPTH

_to_json = msgspec.json.Encoder().encode
_sorted_json = msgspec.json.Encoder(order="deterministic").encode
_from_json = msgspec.json.Decoder().decode
_parts = msgspec.json.Decoder(dict[str, Raw]).decode
_PLACE = r"(?<=at `)\$\[(\d+)\](.*)"
_KNOWN_AT_MOST = 256
_BRACE = ord("{")
_NONE: dict[str, Any] = {}
_CONTAINERS = frozenset({dict, list})

Containers: TypeAlias = tuple[tuple[int, frozenset[Any]], ...]
"""The places of the dicts and lists among some arguments, with the kinds that their parts may be of."""


class CallShape:
    """How calls of one function are stored; made once, when the function is defined.

    A call is a JSON array of the positional values, ``["A-17", 1299]``; if some can only be given by name, an object
    of the names, in which the empty name holds the array: ``{"": ["A-17"], "gift": true}``. What the caller left out
    is left out, so a new parameter with a default changes no recorded call.

    Raises DefinitionError if the signature has ``*args`` or ``**kwargs``, or a type that JSON cannot hold.
    """

    __slots__ = (
        "_array",
        "_containers",
        "_fewest",
        "_known",
        "_order",
        "_ordered",
        "_parts",
        "_plain",
        "_result",
        "_result_kinds",
        "_result_of",
        "_result_parts",
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
        self._result_parts = plain_parts(result)
        self._plain = {name: plain_kinds(type) for name, type in self._types.items()}
        self._parts = {name: plain_parts(type) for name, type in self._types.items()}
        self._containers: dict[tuple[type, ...], Containers] = {}
        self._known: dict[tuple[type, ...], bool] = {}
        self._ordered = [self._types[name] for name in self._order]
        fields = [(f"_{place}", type, UNSET) for place, type in enumerate(self._ordered)]
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
            return raw, digest_of(raw), args, kwargs
        raw = self._small(args, kwargs)
        if raw is not None:
            return raw, digest_of(_sorted_json(args)), _from_json(raw), kwargs
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
            said = re.sub(_PLACE, lambda found: self._order[int(found[1])] + found[2], f"{error!s:.500}")
            raise PayloadError(
                f"{self._what} do not fit its signature {self._signature}: {said}. "
                "Correct them, or bring back code that fits them."
            ) from error
        return positional, named

    def leaves_out(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call leaves out the parameter of that name; false if there is none."""
        return name in self._types and name not in kwargs and name not in self._order[: len(args)]

    def encode_result(self, value: Any, *, limit: int = PAYLOAD_BYTES) -> bytes:
        """The payload of a result; raises PayloadError if it would not come back as the annotation says."""
        kind = value.__class__
        if kind in self._result_kinds:
            return encode(value, limit=limit, what=self._result)
        if kind in self._result_parts:
            raw = at_once(value, self._result_parts[kind], limit)
            if raw is not None:
                return raw
        return encode(value, type=self.result_type, limit=limit, what=self._result)

    def decode_result(self, raw: bytes, ours: bool = False) -> Any:
        """The result that ``raw`` holds, typed by the annotation; raises PayloadError if it does not fit it.

        ``ours`` says that this program has just written it, so that it is strict JSON.
        """
        if ours or raw[0] not in NOT_SCALAR:
            try:
                return self._result_of(raw)
            except MemoryError:
                raise  # of this program, and not of the value
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
        kinds = (*map(type, args),)
        containers = self._containers.get(kinds) or self._find_containers(kinds)
        if kwargs or not containers:
            return None
        for place, parts in containers:
            if not is_plain(args[place], parts):
                return None
        try:
            raw = _to_json(args)
        except (ValueError, TypeError):
            return None
        if len(raw) > INTEGER_DIGITS or b"null" in raw:
            return raw if len(raw) <= PAYLOAD_BYTES and has_plain_numbers(args) else None
        return raw

    def _find_containers(self, kinds: tuple[type, ...]) -> Containers:
        """The dicts and lists among arguments of these kinds, if all come back as they were; else nothing."""
        if _CONTAINERS.isdisjoint(kinds) or not self._fewest <= len(kinds) <= len(self._order):
            return ()
        found = []
        for place, (name, kind) in enumerate(zip(self._order, kinds, strict=False)):
            parts = self._parts[name].get(kind)
            if parts is not None:
                found.append((place, parts))
            elif kind not in self._plain[name]:
                return ()
        containers = tuple(found)
        if len(self._containers) < _KNOWN_AT_MOST:
            self._containers[kinds] = containers
        return containers

    def _slow(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[bytes, list[Any], dict[str, Any]]:
        """The payload and copies of the arguments, after every check."""
        positional, named = self._bind(args, kwargs)
        plain = self._all_plain(zip(self._order, positional, strict=False)) and self._all_plain(named.items())
        known = None if plain or named else all_at_sight(positional, self._ordered, PAYLOAD_BYTES)
        if known is not None:
            return known, *self._read(known)
        raw = self._write(positional, named)
        if plain:
            kinds = (*map(type, positional),)
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
            raise refused(refusal, f"argument {name!r} of {self.name}") from None
        except UnicodeEncodeError:
            raise surrogate(self._what) from None
        if len(raw) > PAYLOAD_BYTES:
            raise too_large(self._what, len(raw), PAYLOAD_BYTES)
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
