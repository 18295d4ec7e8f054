"""A worker as the store knows it: one incarnation of one OS process, its beats, its offer, and the unhosted backlog.

An offer names the kinds and versions that the worker hosts, their code, their origins and the schema. Workers of old
versions write and read only pairs of texts. So what was added later is written as such pairs too, whose first text
begins with a space, as no name does. A backlog counts the processes of one kind and version that no worker holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import DecodeError, Struct, json

from perdure.kernel.stored import MALFORMED


class WorkerRow(Struct, frozen=True, gc=False):
    """One row of the table ``worker``.

    ``due_at`` is the time by which the next beat must have come. ``locked`` says that the incarnation holds a
    lock which the system frees at its death, so that a free lock is evidence; ``lock_free`` says that it was free.
    ``ended_at`` is set once, by the worker itself or by one that found it dead; afterwards nothing it sends counts.
    ``hosts`` is JSON: the kinds and code versions it offers. ``hang`` is the evidence that its event loop is blocked.
    ``figures`` is what its last beat has told of its work.
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
    figures: bytes | None = None


class Hang(Struct, frozen=True, omit_defaults=True):
    """What blocks the event loop of a worker: code of one ``process``, in a ``step`` or (without one) in its workflow.

    ``seconds`` is for how long it has blocked, ``stack`` the end of its stack trace. A hang counts like a death of the
    worker, but against that process alone: other processes of the worker do not become suspects.
    """

    process: bytes
    step: str = ""
    seconds: float = 0.0
    stack: str = ""

    @property
    def where(self) -> str:
        """Which code blocks the event loop, in words."""
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
        except DecodeError:  # written by a version with another form
            return None


class LeaseRenewal(Struct, frozen=True, gc=False):
    """One row whose lease a beat prolongs, with the progress its steps have reported (JSON) if it changed."""

    process: bytes
    token: int
    progress: bytes | None = None


class Beat(Struct, frozen=True, gc=False):
    """A sign of life, and the leases it prolongs. Durations are microseconds.

    ``figures`` are those of the worker (see :mod:`perdure.kernel.figures`), if it tells them this time.
    With ``hang`` it is the opposite: the store keeps this evidence of a blocked event loop in the worker's row, ended
    or not, and counts and prolongs nothing. The next sign of life removes the evidence.
    """

    worker: bytes
    renewals: tuple[LeaseRenewal, ...]
    lease: int
    silence: int
    hang: bytes | None = None
    figures: bytes | None = None


class BeatAnswer(Struct, frozen=True, gc=False):
    """``alive`` is false when the incarnation was ended: drop everything. ``lost`` are rows that it owns no more.

    ``skipped`` are rows that it owns and whose leases were not prolonged, since another session locks them just now.
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
    skipped: tuple[bytes, ...] = ()


_SCHEMA = " schema"
_CODE = " code "
_ORIGIN = " origin "
_pairs = json.Decoder(list[tuple[str, str]]).decode

Pair = tuple[str, str]


class Offer(Struct, frozen=True):
    """What a worker hosts, and which code that is.

    ``codes`` has a digest of the code of each kind and version; ``schema`` is the newest that the worker knows.
    ``origins`` has the place of the function, ``shop.orders:order``, where the version is not that place already.
    """

    hosted: frozenset[Pair] = frozenset()
    codes: Mapping[Pair, str] = {}
    schema: int = 0
    origins: Mapping[Pair, str] = {}

    def encode(self) -> bytes:
        """The JSON that stands in the worker's row."""
        codes = [(f"{_CODE}{digest} {kind}", version) for (kind, version), digest in sorted(self.codes.items())]
        # A line feed parts the two: a kind has none, while a module is named like its folder, perhaps with spaces.
        origins = [(f"{_ORIGIN}{origin}\n{kind}", version) for (kind, version), origin in sorted(self.origins.items())]
        return json.encode([*sorted(self.hosted), *codes, *origins, (_SCHEMA, str(self.schema))])

    @classmethod
    def decode(cls, raw: bytes) -> Offer:
        """The offer in a worker's row; an empty one if another version wrote it in another form."""
        try:
            return _read(_pairs(raw))
        except (*MALFORMED, ValueError):
            return cls()

    def differs(self, other: Offer, kind: str, version: str) -> bool:
        """Whether both host this kind and version, and with different code."""
        pair = (kind, version)
        return pair in self.hosted and pair in other.codes and self.codes.get(pair) != other.codes[pair]

    def origin(self, kind: str, version: str) -> str:
        """Where the function of a hosted kind and version is defined; empty if the worker has not said so."""
        return self.origins.get((kind, version)) or (version if _by_default(kind, version) else "")


def hosted_by(workers: Iterable[WorkerRow]) -> set[Pair]:
    """The kinds and versions that at least one of these workers hosts."""
    return {pair for worker in workers for pair in Offer.decode(worker.hosts).hosted}


def namesakes(workers: Iterable[WorkerRow]) -> dict[str, list[str]]:
    """Default names that functions of several modules share, each with their origins: ``shop.orders:order``."""
    found: dict[str, set[str]] = {}
    for kind, version in hosted_by(workers):
        if _by_default(kind, version):
            found.setdefault(kind, set()).add(version)
    return {kind: sorted(origins) for kind, origins in sorted(found.items()) if len(origins) > 1}


def mistakable(workers: Iterable[WorkerRow]) -> dict[Pair, list[str]]:
    """Kinds and versions that workers host from different modules, each with its origins.

    Such a name was given to several functions, or the function was moved. The workers run each other's processes.
    """
    found: dict[Pair, set[str]] = {}
    for offer in (Offer.decode(worker.hosts) for worker in workers):
        for pair in offer.hosted:
            if origin := offer.origin(*pair):
                found.setdefault(pair, set()).add(origin)
    return {pair: sorted(origins) for pair, origins in sorted(found.items()) if len(set(map(_module, origins))) > 1}


def _by_default(kind: str, version: str) -> bool:
    """Whether the version is the place of the function, as it is where no name was given."""
    return version.endswith(f":{kind}")


def _module(origin: str) -> str:
    return origin.rpartition(":")[0]


def _read(pairs: Iterable[Pair]) -> Offer:
    hosted: set[Pair] = set()
    codes: dict[Pair, str] = {}
    origins: dict[Pair, str] = {}
    schema = 0
    for first, second in pairs:
        if first == _SCHEMA:
            schema = int(second)
        elif first.startswith(_CODE):
            digest, _, kind = first.removeprefix(_CODE).partition(" ")
            codes[kind, second] = digest
        elif first.startswith(_ORIGIN):
            origin, _, kind = first.removeprefix(_ORIGIN).rpartition("\n")
            origins[kind, second] = origin
        elif not first.startswith(" "):  # else a newer version has added it
            hosted.add((first, second))
    return Offer(frozenset(hosted), codes, schema, origins)


COUNTED = 1_000
"""The count of one kind and version stops here: people read "at least" so many."""


class Backlog(Struct, frozen=True, gc=False):
    """How many unfinished processes of a kind and version no worker holds: due, asleep, held or broken."""

    kind: str
    code: str
    processes: int


def unhosted(backlogs: Iterable[Backlog], workers: Sequence[WorkerRow]) -> list[Backlog]:
    """The backlogs whose code none of these workers hosts."""
    hosted = hosted_by(workers)
    return [backlog for backlog in backlogs if (backlog.kind, backlog.code) not in hosted]
