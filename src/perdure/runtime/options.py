"""Worker options: how long leases last, how often a worker beats, how much it holds, how long things are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure import limits
from perdure.errors import DefinitionError
from perdure.kernel.policy import Policy


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What may be set for one worker; the defaults are those of ``limits``. Raises DefinitionError on nonsense.

    ``exit_when_hung`` lets a worker end its OS process when code has blocked its event loop until its lease is lost, as
    `perdure worker` does; else the worker drops all that it held as soon as the loop runs again. ``cached`` is how many
    processes that only wait, and were let go, stay in memory, so that their next wake needs no replay; 0 keeps none.
    ``policies`` set retries and timeouts of steps by name, ``{"order.*.charge": Policy(attempts=5)}``; those of
    ``perdure.toml`` and of PERDURE_POLICIES count more. ``breakers`` set numbers of circuit breakers by name,
    ``{"bank": {"failures": 3}}``; those of ``perdure.toml`` count more. ``check_rate`` is how many processes a second
    all workers together examine in the background by the named checks (0: none); ``perdure.toml`` counts more.
    ``outages`` say when a kind is held, as many of its processes fail alike: ``{"order": {"failures": 20}}``, see
    ``OutageRule``; a queue is named ``"@bank"``. Those of ``perdure.toml`` count more. ``sweeps`` are the seconds
    between two looks of a sweep, by its name: ``{"owner_gone": 2.0}``; those of ``perdure.toml`` count more.
    ``missing`` are the kinds whose processes begin again by themselves, so often in a row, if records of them are
    missing or do not fit the code: ``{"order": {"restart": 2}}``; others are parked. ``perdure.toml`` counts more.
    """

    lease_seconds: float = limits.LEASE_SECONDS
    beat_seconds: float = limits.BEAT_SECONDS
    in_flight: int = limits.IN_FLIGHT_PROCESSES
    stop_seconds: float = limits.STOP_SECONDS
    retention_seconds: float = limits.RETENTION_SECONDS
    key_retention_seconds: float = limits.KEY_RETENTION_SECONDS
    cells: int = limits.STEP_CELLS
    exit_when_hung: bool = False
    cached: int = limits.CACHED_PROCESSES
    policies: Mapping[str, Policy] = field(default_factory=dict)
    breakers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    check_rate: float = limits.CHECKED_RECORDS
    outages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sweeps: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the reason."""
        if not 0 < self.beat_seconds * 2 <= self.lease_seconds:
            raise DefinitionError(
                f"beat_seconds={self.beat_seconds} and lease_seconds={self.lease_seconds}: "
                "a lease must last at least two beats; make the lease longer or the beats more frequent"
            )
        if self.in_flight < 1:
            raise DefinitionError(f"in_flight={self.in_flight}: a worker must hold at least one process")
        if self.cells < 1:
            raise DefinitionError(f"cells={self.cells}: a worker must have room for at least one hard step")
        if self.cached < 0:
            raise DefinitionError(f"cached={self.cached}: it may not be negative; 0 keeps no process in memory")
        if not 0 <= self.check_rate < 1_000_000:
            raise DefinitionError(f"check_rate={self.check_rate}: give processes a second, or 0 for no checks")
        if not isinstance(self.policies, Mapping):
            raise DefinitionError(f'policies={self.policies!r:.100}: write {{"order.*.charge": Policy(attempts=5)}}')
        if min(self.stop_seconds, self.retention_seconds, self.key_retention_seconds) < 0:
            raise DefinitionError("stop_seconds, retention_seconds and key_retention_seconds may not be negative")
