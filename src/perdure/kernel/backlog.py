"""A backlog: the unfinished processes of one kind and version that are in nobody's hands, and who offers their code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from perdure.kernel.recorded import MALFORMED
from perdure.kernel.worker import Worker

COUNTED = 1_000
"""More processes of one kind and version are not counted: "at least" so many are told."""

_hosts = msgspec.json.Decoder(set[tuple[str, str]]).decode


class Backlog(Struct, frozen=True, gc=False):
    """How many unfinished processes of a kind and version nobody has in hand: due, asleep, held or broken."""

    kind: str
    code: str
    processes: int


def unoffered(backlogs: Iterable[Backlog], workers: Sequence[Worker]) -> list[Backlog]:
    """Those whose code none of these workers offers."""
    offered: set[tuple[str, str]] = set()
    for worker in workers:
        try:
            offered |= _hosts(worker.hosts)
        except MALFORMED:
            continue  # one of another version, which says it in other words
    return [backlog for backlog in backlogs if (backlog.kind, backlog.code) not in offered]
