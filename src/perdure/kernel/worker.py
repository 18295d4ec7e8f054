"""A worker as the store knows it: one incarnation of one OS process, its beats, what it offers, and what nobody offers.

An offer names the kinds and versions that the worker hosts, their code and the schema. Workers of former versions say,
and read, nothing but pairs of texts. So what came later is said in such pairs too, whose first text begins with a
space, as no name does. A backlog counts the processes of one kind and version that no worker holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import DecodeError, Struct, json

from perdure.kernel.stored import MALFORMED


class WorkerRow(Struct, frozen=True, gc=False):
    """One row of the table ``worker``.

    ``due_at`` is the time by which the next beat must have come. ``locked`` says that the incarnation holds a
    lock which the system frees at its death, so that a free lock is evidence; ``lock_free`` is what a look found.
    ``ended_at`` is set once, by the worker itself or by whoever found it dead; afterwards nothing it sends counts.
    ``hosts`` is JSON: the kinds and code versions it offers. ``hang`` is the evidence that its event loop is blocked.
    """

    id: bytes
    name: str
    hosts: bytes = b"[]"
    started_at: int = 0
    beats: int = 0
    due_at: int | None = None
    locked: bool = False
    lock_free: bool = False
    ended_at: int | None = None
    died: bool = False
    hang: bytes | None = None


class Hang(Struct, frozen=True, omit_defaults=True):
    """What blocks the event loop of a worker: code of one ``process``, in a ``step`` or (without one) in its workflow.

    ``seconds`` is for how long it has, ``stack`` the end of its stack trace. It counts like a death of the worker, but
    against that process alone: who was in the same hand is no suspect.
    """

    process: bytes
    step: str = ""
    seconds: float = 0.0
    stack: str = ""

    @property
    def where(self) -> str:
        """Where its code has the event loop, in words."""
        return f"step {self.step}" if self.step else "workflow code"

    def encode(self) -> bytes:
        """The evidence as it is kept in the worker's row."""
        return json.encode(self)

    @classmethod
    def read(cls, raw: bytes | None) -> Hang | None:
        """The evidence of a worker's row, if there is some that can be read."""
        if raw is None:
            return None
        try:
            return json.decode(raw, type=cls)
        except DecodeError:  # of a version that says it in other words
            return None


class LeaseRenewal(Struct, frozen=True, gc=False):
    """One row whose lease a beat prolongs, with the progress its steps have reported (JSON) if it changed."""

    process: bytes
    token: int
    progress: bytes | None = None


class Beat(Struct, frozen=True, gc=False):
    """A sign of life, and the leases it prolongs. Durations are microseconds.

    With ``hang`` it is the opposite: the evidence that this worker's event loop is blocked is kept in its row, ended or
    not, and nothing is counted or prolonged. The next sign of life takes it back.
    """

    worker: bytes
    renewals: tuple[LeaseRenewal, ...]
    lease: int
    silence: int
    hang: bytes | None = None


class BeatAnswer(Struct, frozen=True, gc=False):
    """``alive`` is false when the incarnation was ended: drop everything. ``lost`` are rows owned no more.

    ``lead`` is how many microseconds the store's time is ahead of its machine's clock, since that was put back.
    ``schema_ahead`` is the number of the database's schema where a newer Perdure has migrated it, else 0; ``outgrown``
    says that this Perdure cannot go on beside it.
    """

    alive: bool
    now: int
    lost: tuple[bytes, ...] = ()
    lead: int = 0
    schema_ahead: int = 0
    outgrown: bool = False


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


def hosted_by(workers: Iterable[WorkerRow]) -> set[Pair]:
    """The kinds and versions that at least one of these workers hosts."""
    return {pair for worker in workers for pair in Offer.decode(worker.hosts).hosted}


def namesakes(workers: Iterable[WorkerRow]) -> dict[str, list[str]]:
    """Names that functions of several modules have by default, each with where these are: ``shop.orders:order``."""
    found: dict[str, set[str]] = {}
    for kind, version in hosted_by(workers):
        if version.endswith(f":{kind}"):
            found.setdefault(kind, set()).add(version)
    return {kind: sorted(origins) for kind, origins in sorted(found.items()) if len(origins) > 1}


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


COUNTED = 1_000
"""More processes of one kind and version are not counted: "at least" so many are told."""


class Backlog(Struct, frozen=True, gc=False):
    """How many unfinished processes of a kind and version nobody has in hand: due, asleep, held or broken."""

    kind: str
    code: str
    processes: int


def unhosted(backlogs: Iterable[Backlog], workers: Sequence[WorkerRow]) -> list[Backlog]:
    """Those whose code none of these workers hosts."""
    hosted = hosted_by(workers)
    return [backlog for backlog in backlogs if (backlog.kind, backlog.code) not in hosted]
