"""A campaign of scenes: so many histories on so many cores, with a summary; what was never reached fails a long one.

``make sim`` and ``make sim-long`` call it: ``python -m tests.simulator.campaign COUNT=1000 CORES=2``; FROM=n begins
at another seed. ``make sim SEED=17`` repeats one history, and shrinks it if it fails. Without a seed, ``make sim`` then
plays the tests of the scenarios in their long forms.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import Struct

from perdure.testing.simulator.__main__ import main as simulator
from perdure.testing.simulator.campaign import Tally, explore
from perdure.testing.simulator.choice import Record
from tests.simulator import probes

SCENE = "tests.simulator.scene:scene"
APART = (
    "core_adjusting:adjustments",
    "core_at_most_once:payrolls",
    "core_breakers:outages",
    "core_brought:lists",
    "core_callers:offices",
    "core_changes:meddling",
    "core_checks:repairs",
    "core_damage:damaging",
    "core_failover:failing_over",
    "core_debounce:issues",
    "core_flows:orders",
    "core_forks:forks",
    "core_former:tenancies",
    "core_former_release:beside",
    "core_hangs:in_any_weather",
    "core_kinds:parcels",
    "core_leaders:reigns",
    "core_looks:looking",
    "core_machines:tills",
    "core_new_code:deployments",
    "core_notices:dispatch",
    "core_operations:operated",
    "core_outages:holidays",
    "core_step_transactions:transactions",
    "core_streams:audit",
    "core_progress:backups",
    "core_queues:given_up",
    "core_queues:limited_queue",
    "core_queues:one_till",
    "core_restore:restoring",
    "core_retries:estates",
    "core_revivals:errands",
    "core_schedules:almanac",
    "core_suspects:guilty_among_many",
    "core_sweeps:crowds",
    "core_thresholds:calls",
    "core_timers:alarms",
    "core_undoing:trips",
    "core_upgrade:rolling",
    "core_workflow_retry:errands",
)
"""Scenarios in which something happens that must not happen to every history."""
SHARE = 100
"""For so many histories of the scene there is one of each of these."""
OFTEN = {"core_failover:failing_over": 5}
"""Of these so many times as many: they are short, and what they look for is rare."""
LONG = 5_000
"""Histories from which on every probe must have been reached."""


class Kept(Struct):
    """A history that once failed: by which law, what it was, and the choices that repeat it.

    ``defect`` is the broken engine of the gate that still shows it: choices mean something else once programs are drawn
    in another way, and would then prove nothing.
    """

    law: str
    defect: str
    story: str
    choices: Record
    seed: int = 0


def missed(tally: Tally) -> list[str]:
    """The probes that no history has reached."""
    return sorted(probes.ALL - {name for name, times in tally.probes.items() if times})


def main(words: Sequence[str]) -> int:
    """Run what the command line says; the answer is 1 if a law was broken or, in a long run, a probe missed."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if options.get("SEED"):
        return simulator([SCENE, *(word for word in words if not word.endswith("="))])
    first, count = int(options.get("FROM") or 0), int(options.get("COUNT") or 1_000)
    cores = int(options.get("CORES") or 2)
    tally = explore(SCENE, range(first, first + count), cores=cores, told=_progress)
    print(file=sys.stderr)
    print(*tally.lines(), sep="\n")
    left = missed(tally)
    print(f"{len(probes.ALL) - len(left)} of {len(probes.ALL)} probes reached")
    for name in left:
        print(f"never reached: {name}")
    for one in tally.failed[:10]:
        print(f"repeat it: make sim SEED={one.seed}")
    apart = APART if tally.histories == count else ()  # somebody has interrupted it
    share = -(-count // SHARE)
    failed = sum([_apart(name, range(first, first + share * OFTEN.get(name, 1)), cores) for name in apart])
    return int(bool(tally.failed or failed) or (tally.histories >= LONG and bool(left)))


def _apart(name: str, seeds: Sequence[int], cores: int) -> int:
    """Play one of the scenarios apart; how many of its histories broke a law."""
    scenario = f"tests.simulator.{name}"
    tally = explore(scenario, seeds, cores=cores, apart=True)
    print(f"{name}: {tally.histories:,} histories in {tally.took:,.0f} s, {len(tally.failed)} broke a law")
    for one in tally.failed[:10]:
        print(f"SEED={one.seed} {one.law}: {one.text}")
        print(f"repeat it: python -m perdure.testing.simulator {scenario} SEED={one.seed}")
    return len(tally.failed)


def _progress(tally: Tally) -> None:
    last = f" (SEED={tally.failed[-1].seed})" if tally.failed else ""
    print(
        f"\r{tally.histories:,} histories, {len(tally.failed)} broke a law{last}", end="", file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
