"""The parts of a worker: what each of its roles is made of, given to all of them as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import NO_POLICIES, StepPolicies
from perdure.clock import Computer, microseconds
from perdure.kernel.breaker import BreakerSettings
from perdure.kernel.missing import MissingRule
from perdure.kernel.outage import OutageRule
from perdure.runtime.alerts import Alerts, OnAlert
from perdure.runtime.committer import Committer
from perdure.runtime.figures import FiguresTold
from perdure.runtime.options import WorkerOptions
from perdure.runtime.store_time import StoreTime
from perdure.store.base import Store
from perdure.telemetry import Telemetry

if TYPE_CHECKING:
    from perdure.retention.remover import Remover


class Incarnation:
    """Shared by all roles of a worker: when another worker has ended it, it goes on under a new ``id``.

    Once it is ``lost``, the worker claims nothing more and sends no beat in its name.
    ``hang`` is the evidence, until it is written, of what blocked the event loop until the lease was lost.
    """

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.lost = False
        self.hang: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkerParts:
    """What one worker is made of. ``alone``: it runs one group of suspects and nothing else (rule 13).

    ``observers`` hear what it does, and ``tracer`` is the one among them that traces (:mod:`perdure.runtime.observed`).
    ``engine`` is what its steps may start other processes with. ``check_rate`` is how many processes a second are
    examined in the background; 0 examines none. ``outages`` are the rules by which kinds are held. ``remover`` removes
    processes that have ended by rules of retention, if the worker has any. ``sweep_paces`` are the seconds between two
    passes of a sweep, by name, ``missing`` the kinds that begin again by themselves if they cannot be replayed.
    ``lease`` is for how many microseconds a claim, a commit or a beat leases a row.
    """

    incarnation: Incarnation
    store: Store
    registry: Registry
    committer: Committer
    time: StoreTime
    machine: Computer
    telemetry: Telemetry
    options: WorkerOptions
    alone: bool = False
    policies: StepPolicies = NO_POLICIES
    engine: Any = None
    on_alert: OnAlert | None = None
    breakers: BreakerSettings = field(default_factory=BreakerSettings)
    check_rate: float = 0.0
    observers: Sequence[Any] = ()
    tracer: Any = None
    outages: Mapping[str, OutageRule] = field(default_factory=dict)
    remover: Remover | None = None
    sweep_paces: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, MissingRule] = field(default_factory=dict)
    lease: int = field(init=False)
    alerts: Alerts = field(init=False)
    figures: FiguresTold = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alerts", Alerts(self.telemetry, self.on_alert))
        object.__setattr__(self, "figures", FiguresTold(self.options.in_flight))
        object.__setattr__(self, "lease", microseconds(self.options.lease_seconds))

    def grace(self) -> float:
        """Seconds in which workers may still take their locks again: till then a free lock is no evidence (rule 12).

        All sessions of the database may have ended at once, as by a restart of its server. While our own session is
        lost, it is the whole grace, which begins anew when that has come back.
        """
        since = self.store.backend.standing_since
        if since is None:
            return 0.0
        return max(0.0, limits.PROBE_GRACE_SECONDS - max(0.0, self.time.monotonic() - since))
