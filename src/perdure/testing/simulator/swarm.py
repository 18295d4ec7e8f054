"""A swarm: how often things go wrong in one history, and how long they take; each history draws its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perdure import limits
from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator.choice import Choices

FAULTS = {
    "failed before": (0.0, 0.0, 0.005, 0.1),
    "failed after": (0.0, 0.0, 0.005, 0.1),
    "busy": (0.0, 0.0, 0.002, 0.02),
    "slow": (0.0, 0.0, 0.002, 0.02),
    "full": (0.0, 0.0, 0.002, 0.02),
    "died before": (0.0, 0.0, 0.0005, 0.005),
    "died after": (0.0, 0.0, 0.0005, 0.005),
    "session lost": (0.0, 0.0, 0.001, 0.01),
}
"""What a call to the store may meet, besides nothing, and the rates of which each history draws one."""
BLOWS = {
    "kill": (0.0, 0.0, 0.01, 0.05),
    "pause": (0.0, 0.0, 0.01, 0.05),
    "block": (0.0, 0.0, 0.02, 0.1),
    "stop": (0.0, 0.0, 0.005, 0.02),
    "clock forward": (0.0, 0.0, 0.002, 0.02),
    "clock back": (0.0, 0.0, 0.002, 0.02),
}
"""What the storm may do to a node, or to the clock, at each of its looks, and the rates of which one is drawn."""

CUT = (0.0, 0.0, 0.02)
"""How often the storm cuts a node off from the store, at each of its looks: rates of which one is drawn."""
REFUSALS = (0.0, 0.0, 0.02, 0.1)
"""How often the system refuses a node threads or descriptors for a while, at each look of the storm."""
DOORS = (
    *[("", "", 0.0)] * 5,
    ("start", "failed after", 0.3),
    ("send", "failed after", 0.3),
    ("commit", "failed after", 0.3),
    ("claim", "failed after", 0.3),
    ("beat", "failed before", 0.9),
)
"""A door of the store that fails more often than all others, with what its calls meet and how often; or none."""

SCALES = (
    (0.0005,),
    (0.0005, 0.004),
    (0.0005, 0.05),
    (0.001, 0.02, 0.3),
    (0.001, 0.5, 3.0),
    (0.2,),
    (0.8,),
)
"""How long a call to the store may take, one way, in seconds; the first is the boring one."""


@dataclass(frozen=True)
class Swarm:
    """The weather of one history. Rates are probabilities: of ``faults`` per call, of ``blows`` per look of the storm.

    ``nodes`` is how many workers there are, ``skew`` how far their monotonic clocks may run apart (0.01: one percent),
    ``cut`` how often a node is cut off from the store for a while, ``door`` which door of the store fails most often,
    ``conflict`` how often another session locks a row, ``deaf`` how often a hint gets lost, ``late`` how often a call
    of a killed node still arrives, ``refusals`` how often the system refuses a node something. Leave the rates out for
    a history in which nothing goes wrong.
    The server may fail over (:meth:`Cluster.fail_over`) to a standby that lags ``lag`` commits behind.
    A backup may be put back under running nodes (:meth:`Cluster.restore`) where ``backups`` is true.
    The storm lasts ``storm_seconds``; calls are slow and fail for four times as long, unless the cluster is healed.
    """

    nodes: int = 2
    latencies: tuple[float, ...] = SCALES[0]
    faults: dict[str, float] = field(default_factory=dict)
    blows: dict[str, float] = field(default_factory=dict)
    cut: float = 0.0
    door: tuple[str, str, float] = DOORS[0]
    conflict: float = 0.0
    deaf: float = 0.0
    late: float = 0.0
    skew: float = 0.0
    lag: int = 0
    refusals: float = 0.0
    backups: bool = False
    storm_seconds: float = 20.0
    look_seconds: float = 0.5
    options: WorkerOptions = field(
        default_factory=lambda: WorkerOptions(lease_seconds=5.0, beat_seconds=1.0, stop_seconds=2.0)
    )

    @classmethod
    def drawn(cls, choices: Choices) -> Swarm:
        """A swarm by chance: every rate is none, low or high, and most histories have only some kinds of trouble."""
        return cls(
            nodes=1 + choices.pick((1, 0, 1, 2, 4), "swarm"),
            latencies=choices.pick(SCALES, "scale"),
            faults={fault: choices.pick(rates, _kind(fault)) for fault, rates in FAULTS.items()},
            blows={blow: choices.pick(rates, "swarm") for blow, rates in BLOWS.items()},
            cut=choices.pick(CUT, "cut"),
            door=choices.pick(DOORS, "door"),
            conflict=choices.pick((0.0, 0.02, 0.2), "swarm"),
            deaf=choices.pick((0.0, 0.1, 1.0), "swarm"),
            late=choices.pick((0.0, 0.5), "swarm"),
            skew=choices.pick((0.0, 0.0001, 0.01), "swarm"),
            refusals=choices.pick(REFUSALS, "shortages"),
            storm_seconds=choices.pick((10.0, 5.0, 30.0), "swarm"),
            options=replace(
                choices.pick(
                    (
                        WorkerOptions(lease_seconds=5.0, beat_seconds=1.0, stop_seconds=2.0),
                        WorkerOptions(lease_seconds=2.0, beat_seconds=0.5, stop_seconds=1.0),
                        WorkerOptions(lease_seconds=15.0, beat_seconds=3.0, stop_seconds=10.0),
                        WorkerOptions(lease_seconds=5.0, beat_seconds=1.0, stop_seconds=2.0, in_flight=2),
                    ),
                    "swarm",
                ),
                cached=choices.pick((limits.CACHED_PROCESSES, 0, 2), "cache"),
            ),
        )


def _kind(fault: str) -> str:
    """Faults that were added later are drawn apart, so that recorded histories stay what they are."""
    return "sessions" if fault == "session lost" else "swarm"
