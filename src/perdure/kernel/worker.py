"""A worker as the store knows it: one incarnation of one OS process of ours, with its beats."""

from __future__ import annotations

from msgspec import Struct


class Worker(Struct, frozen=True, gc=False):
    """One row of the table ``worker``.

    ``due_at`` is the time by which the next beat must have come. ``locked`` says that the incarnation holds a
    lock which the system frees at its death, so that a free lock is evidence; ``lock_free`` is what a look found.
    ``ended_at`` is set once, by the worker itself or by whoever found it dead; afterwards nothing it sends counts.
    ``hosts`` is JSON: the kinds and code versions it offers.
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


class Renewal(Struct, frozen=True, gc=False):
    """One row whose lease a beat prolongs, with the progress its steps have reported (JSON) if it changed."""

    process: bytes
    token: int
    progress: bytes | None = None


class Beat(Struct, frozen=True, gc=False):
    """A sign of life, and the leases it prolongs. Durations are microseconds."""

    worker: bytes
    renewals: tuple[Renewal, ...]
    lease: int
    silence: int


class BeatAnswer(Struct, frozen=True, gc=False):
    """``alive`` is false when the incarnation was ended: drop everything. ``lost`` are rows owned no more."""

    alive: bool
    now: int
    lost: tuple[bytes, ...] = ()
