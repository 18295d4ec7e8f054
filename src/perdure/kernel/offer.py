"""An offer: what a worker says of itself in its row: the kinds and versions that it hosts, which code, which schema.

Workers of former versions say, and read, nothing but pairs of texts. So what came later is said in such pairs too,
whose first text begins with a space, as no name does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, json

from perdure.kernel.recorded import MALFORMED

_SCHEMA = " schema"
_CODE = " code "
_pairs = json.Decoder(list[tuple[str, str]]).decode

Pair = tuple[str, str]


class Offer(Struct, frozen=True):
    """``codes`` tells of each kind and version a digest of its code; ``schema`` is the newest that the worker knows."""

    hosted: frozenset[Pair] = frozenset()
    codes: Mapping[Pair, str] = {}
    schema: int = 0

    def encode(self) -> bytes:
        """The JSON that stands in the worker's row."""
        codes = [(f"{_CODE}{digest} {kind}", version) for (kind, version), digest in sorted(self.codes.items())]
        return json.encode([*sorted(self.hosted), *codes, (_SCHEMA, str(self.schema))])

    @classmethod
    def decode(cls, raw: bytes) -> Offer:
        """What a row says; an empty offer if another version says it in other words."""
        try:
            return _read(_pairs(raw))
        except (*MALFORMED, ValueError):
            return cls()

    def differs(self, other: Offer, kind: str, version: str) -> bool:
        """Whether both host this kind and version, and with different code."""
        pair = (kind, version)
        return pair in self.hosted and pair in other.codes and self.codes.get(pair) != other.codes[pair]


def _read(pairs: Iterable[Pair]) -> Offer:
    hosted: set[Pair] = set()
    codes: dict[Pair, str] = {}
    schema = 0
    for first, second in pairs:
        if first == _SCHEMA:
            schema = int(second)
        elif first.startswith(_CODE):
            digest, _, kind = first.removeprefix(_CODE).partition(" ")
            codes[kind, second] = digest
        else:
            hosted.add((first, second))
    return Offer(frozenset(hosted), codes, schema)
