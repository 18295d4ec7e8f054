"""A campaign: many histories of one scenario, counted together, on as many cores as there are."""

from __future__ import annotations

import gc
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from perdure.clock import Computer
from perdure.testing.simulator.cluster import Hosted
from perdure.testing.simulator.history import History, Scenario, simulate

AT_ONCE = 20
"""Seeds that a core is given at a time."""


@dataclass
class Failed:
    """A history that broke a law: its seed, the law's name, what was broken."""

    seed: int
    law: str
    text: str


@dataclass
class Tally:
    """What many histories came to: how many, virtual and real seconds, transactions, faults, probes, failures."""

    histories: int = 0
    seconds: float = 0.0
    took: float = 0.0
    calls: int = 0
    transactions: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    failed: list[Failed] = field(default_factory=list)

    def add(self, history: History) -> None:
        """Count one history."""
        self.histories += 1
        self.seconds += history.seconds
        self.calls += history.calls
        self.transactions += history.transactions
        self.faults += history.faults
        self.probes += history.probes
        self.events += history.events
        if history.violation is not None:
            self.failed.append(Failed(history.seed, history.violation.law, history.violation.text))

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.histories += other.histories
        self.seconds += other.seconds
        self.calls += other.calls
        self.transactions += other.transactions
        self.faults += other.faults
        self.probes += other.probes
        self.events += other.events
        self.failed += other.failed

    def lines(self) -> Iterator[str]:
        """The tally for people."""
        rate = self.histories / self.took * 60 if self.took else 0.0
        yield (
            f"{self.histories:,} histories in {self.took:,.0f} s ({rate:,.0f} a minute): "
            f"{self.seconds / 3600:,.1f} virtual hours, {self.transactions:,} transactions checked, "
            f"{len(self.failed)} broke a law"
        )
        for name, counted in (("faults", self.faults), ("events", self.events), ("probes", self.probes)):
            if counted:
                yield f"{name}: {', '.join(f'{what} {times:,}' for what, times in sorted(counted.items()))}"
        for one in self.failed:
            yield f"SEED={one.seed} {one.law}: {one.text}"


def scenario_of(name: str) -> Scenario:
    """The scenario that ``module:function`` names."""
    module, _, function = name.partition(":")
    found: Scenario = getattr(importlib.import_module(module), function)
    return found


def hosted_in(scenario: Scenario) -> Sequence[Hosted]:
    """What the workers of a scenario host that is run ``apart``: the workflows of its own module."""
    return [sys.modules[scenario.__module__]]


def explore(
    scenario: str,
    seeds: Sequence[int],
    *,
    cores: int = 1,
    told: Callable[[Tally], None] = lambda tally: None,
    apart: bool = False,
) -> Tally:
    """Run a history for each seed; ``scenario`` is ``module:function``. ``told`` is called with the tally so far.

    ``apart`` says that its workers host the workflows of its own module, and not all that the program has. After an
    interrupt (Ctrl-C) the answer is what has been tallied until then.
    """
    tally = Tally()
    began = Computer().monotonic()
    with suppress(KeyboardInterrupt):
        for part in _parts(partial(_explored, scenario, apart), seeds, cores):
            tally.merge(part)
            tally.took = Computer().monotonic() - began
            told(tally)
    tally.failed.sort(key=lambda one: one.seed)
    return tally


def _parts(explored: Callable[[Sequence[int]], Tally], seeds: Sequence[int], cores: int) -> Iterator[Tally]:
    portions = [seeds[at : at + AT_ONCE] for at in range(0, len(seeds), AT_ONCE)]
    if cores <= 1:
        for portion in portions:
            yield explored(portion)
        return
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        try:
            for future in [pool.submit(explored, portion) for portion in portions]:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, wait only for the portions that have begun


def _explored(scenario: str, apart: bool, seeds: Iterable[int]) -> Tally:
    played = scenario_of(scenario)
    workflows = hosted_in(played) if apart else None
    tally = Tally()
    for seed in seeds:
        tally.add(simulate(played, seed, workflows=workflows))
    gc.collect()  # a history collects only its own garbage, and none of the one before it
    return tally
