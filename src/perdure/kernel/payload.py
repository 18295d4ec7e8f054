"""A payload: a typed value as canonical JSON bytes, alike on every store.

No pickle. What JSON would change in silence is refused: see :mod:`perdure.kernel.plain`. A value given with its type
is read back before it is accepted, so that a process finds after a crash exactly what it had before.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from perdure.errors import PayloadError, PayloadTooLarge
from perdure.kernel.at_sight import at_sight
from perdure.kernel.names import check_name
from perdure.kernel.plain import SCALARS, Refused, Walk, has_plain_numbers, is_plain, shown
from perdure.kernel.reading import decode, plain_kinds, plain_parts, read_back
from perdure.limits import ATTRIBUTES_BYTES, INTEGER_DIGITS, PAYLOAD_BYTES

__all__ = ["decode", "digest", "encode", "encode_attributes"]

T = TypeVar("T")
_to_json = msgspec.json.Encoder().encode
_sorted_json = msgspec.json.Encoder(order="deterministic").encode
_from_json = msgspec.json.Decoder().decode
_BRACE = ord("{")  # a byte is found ten times faster than bytes are


class Unchecked:
    """Stands for the type of a value whose reader is not known where it is written."""


def encode(value: Any, *, type: Any = Unchecked, limit: int = PAYLOAD_BYTES, what: str = "the value") -> bytes:
    """The canonical JSON of ``value``, at most ``limit`` bytes; raises PayloadError or PayloadTooLarge.

    With ``type``, the value must come back from it as it was; without, its reader must ask for the fitting type.
    """
    kind = value.__class__
    if kind in SCALARS and (type is kind or type is Unchecked or kind in plain_kinds(type)):
        if kind is str and len(value) > limit:
            raise too_large(what, len(value), limit)
        try:
            raw = _to_json(value)
        except ValueError:  # a lone surrogate, or an integer beyond the interpreter's digits
            return _write(value, limit, what)
        # msgspec writes NaN as null.
        if len(raw) <= limit and (kind is str or len(raw) <= INTEGER_DIGITS) and (kind is not float or raw != b"null"):
            return raw
        return _write(value, limit, what)
    plain = at_once(value, SCALARS, limit) if kind is dict or kind is list else None
    if plain is None:
        known = at_sight(value, kind if type is Unchecked else type, limit)
        if known is not None:
            return known
    raw = plain or _write(value, limit, what)
    if type is not Unchecked and not (plain and plain_parts(type).get(kind) is SCALARS):
        read_back(value, raw, type, what)
    return raw


def encode_and_read(value: T, type: type[T], *, what: str) -> tuple[bytes, T]:
    """The JSON of ``value``, and the value as it will be read; raises PayloadError or PayloadTooLarge."""
    known = at_sight(value, type, PAYLOAD_BYTES)
    if known is not None:
        return known, decode(known, type, what=what, ours=True)
    raw = _write(value, PAYLOAD_BYTES, what)
    return raw, read_back(value, raw, type, what)


def at_once(value: Any, kinds: frozenset[Any], limit: int) -> bytes | None:
    """The JSON of a dict or list with plain parts of these kinds; None if only the walk can say whether it is sound."""
    if not is_plain(value, kinds):
        return None
    try:
        raw = _to_json(value)
    except (ValueError, TypeError):  # a lone surrogate, too many digits, or a change by another thread
        return None
    # msgspec writes NaN as null.
    if (len(raw) > INTEGER_DIGITS or b"null" in raw) and not has_plain_numbers((value,)):
        return None
    return raw if len(raw) <= limit else None


def _write(value: Any, limit: int, what: str) -> bytes:
    try:
        raw = _to_json(Walk(limit).plain(value))
    except Refused as refusal:
        raise refused(refusal, what) from None
    except UnicodeEncodeError:
        raise surrogate(what) from None
    if len(raw) > limit:
        raise too_large(what, len(raw), limit)
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
    return digest_of(_sorted_json(_from_json(raw)) if _BRACE in raw else raw)


def digest_of(raw: bytes) -> bytes:
    """The digest of arguments that hold no object, or whose objects have their keys in order."""
    return blake2b(raw, digest_size=8).digest()


def refused(refusal: Refused, what: str) -> PayloadError:
    """The error for a value that the walk has refused."""
    return (PayloadTooLarge if refusal.too_large else PayloadError)(refusal.text(what))


def surrogate(what: str) -> PayloadError:
    """The error for half a character."""
    return PayloadError(
        f"{what} cannot be stored: a text holds a lone surrogate, which is half a character. "
        "Decode its source with errors='replace', or store it as bytes."
    )


def too_large(what: str, size: int, limit: int) -> PayloadTooLarge:
    """The error for a payload over the limit."""
    return PayloadTooLarge(
        f"{what} takes {size:,} bytes, over the limit of {limit:,}. "
        "Store it elsewhere and pass a reference (a path, an id)."
    )
