"""The laws of an outage, held against what the store says of a kind after each transaction, and who takes what of it.

* ``outage_begins``: once enough have failed alike, the kind is held, and not before.
* ``one_outage``: while it is held no other outage of it begins, and people are told of each at most once.
* ``outage_holds``: while it is held none of it is taken, but as many canaries as were granted.
* ``outage_ends``: it ends by a canary only if what it needs is back and enough were taken, and then it does end.
* ``few_at_first``: after its end each worker takes only a few, and ever more.

A worker learns of a change when it looks: until then, and while something has struck it, it does not know better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from perdure import limits
from perdure.kernel.breaker import HALF_OPEN, OPEN, Circuit
from perdure.kernel.event import Event, EventType
from perdure.kernel.note import Note
from perdure.kernel.outage import DOUBLINGS, PREFIX, OutageRule, OutageState
from perdure.kernel.process import Process, Status
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.violation import Violation

LOOKED_SECONDS = 2.5
"""So long after a change, and three ways to the store, every worker that nothing has struck has heard of it."""
WAYS = 3
"""It asks and is answered, and a claim that it has sent before arrives."""
MORE = 4
"""A worker may take so many more at first: it also looks when a canary has ended, and with the log of sweeps."""


class OutageLaws:
    """Watches one kind, which has a rule. ``away`` says since when what it needs is away; None: it is there."""

    def __init__(self, cluster: Cluster, kind: str, away: Callable[[], float | None]) -> None:
        self.cluster = cluster
        self.kind = kind
        self.state = OutageState()
        self._looked = LOOKED_SECONDS + WAYS * max(cluster.swarm.latencies)
        self._rule = OutageRule(**cluster.swarm.options.outages[kind]).breaker
        self._away = away
        self._kept = False
        self._version = 0
        self._begun = 0
        self._changed = self._window = self._over = -1000.0
        self._granted = self._left = self._canaries = self._tried = 0
        self._count = self._counted = 0
        self._let_go: Counter[int] = Counter()
        self._failed: list[float] = []
        self._blows = 0
        monitor = cluster.monitor
        monitor.wrote, monitor.took, monitor.noted = self._wrote, self._took, self._noted

    def keeps_waiting(self) -> bool:
        """Whether the kind is held now, and something of it waits that could be a canary."""
        waits = (row for row in self.cluster.rows() if row.kind == self.kind and row.status is Status.RUNNING)
        now = self.cluster.wall.now()
        return self.state.held and any(
            row.owner is None and (row.due_at or now) <= now and row.deaths < limits.SUSPECT_DEATHS for row in waits
        )

    def told(self) -> None:
        """At the end: people were told of each outage at most once."""
        texts = [text for _, _, text in self.cluster.log.entries() if f"{self.kind} has an outage" in text]
        if len(texts) > self._begun:
            self.broken("one_outage", f"{self._begun} outages have begun, and people were told of {len(texts)}")

    def broken(self, law: str, text: str) -> None:
        """End the history."""
        self.cluster.loop.fail(Violation(law, text))

    # -- what happens ------------------------------------------------------------------------------------------------

    def _wrote(self, door: str) -> None:
        """A transaction was made: see whether the note of the kind has changed."""
        connection = self.cluster.server.connection
        if door != "records" or connection is None:
            return
        name = PREFIX + self.kind
        row = connection.raw.execute("SELECT version, changed_at, content FROM note WHERE name = ?", (name,)).fetchone()
        if row is not None and row[0] != self._version:
            note = Note(name, *row)
            was, self.state, self._version = self.state, note.read(OutageState), note.version
            self._look(was, self.state, note.changed_at)

    def _look(self, was: OutageState, state: OutageState, at: int) -> None:
        before, after = was.circuit, state.circuit
        by_hand = before.changed_at != after.changed_at
        if (before.state, before.forced) != (after.state, after.forced):
            self._changed = self.cluster.loop.now
            self.cluster.probe(f"an outage is {'kept ' * after.forced}{after.state}")
        if by_hand:
            self._kept = state.held
        elif self._kept:
            self.broken("one_outage", f"a person holds {self.kind}, and it is {after.state} all the same")
        elif (before.state, after.state) == (OPEN, OPEN) and before.since != after.since:
            self.broken("one_outage", f"{self.kind} is held, and another outage begins: {after.reason}")
        if not was.held and state.held:
            self._begun += not by_hand
            self._begins(by_hand=by_hand)
        self._grant(before, after, at)
        if was.held and not state.held:
            self._over, self._failed = self.cluster.loop.now, []
            self._let_go.clear()
            away = self._away()
            if not by_hand and self._tried < self._rule.probes:
                self.broken("outage_ends", f"{self._rule.probes} canaries end it, and {self._tried} were taken")
            if not by_hand and away is not None and away < self._window:
                self.broken("outage_ends", f"a canary has ended it ({after.reason}), and what it needs is away")

    def _begins(self, *, by_hand: bool) -> None:
        """An outage has begun: each process that has failed counts for one outage."""
        self._tried = 0
        if not by_hand:
            self._counted += self._rule.failures
            if self._count < self._counted:
                self.broken("outage_begins", f"it begins with {self._count} failures, of which {self._counted} counted")

    def _grant(self, before: Circuit, after: Circuit, at: int) -> None:
        """How many canaries may be taken: not more than the rule says, until these are given up."""
        if after.state != HALF_OPEN:
            self._granted = self._canaries = 0
            return
        again = before.state == HALF_OPEN and before.until != after.until
        if again or before.state != HALF_OPEN:
            self._left, self._canaries = max(self._granted - self._canaries, 0), 0
            self._window = self.cluster.loop.now
        self._granted = after.probes
        early = again and at < (before.until or 0) and self.cluster.wall.steady
        if early or after.probes > self._rule.probes:
            self.broken("outage_holds", f"canaries are granted while {before.probes} are under way")

    def _noted(self, process: Process, event: Event) -> None:
        """Count those that fail while the kind is not held, and nothing strikes a worker that would tell of it."""
        self._count += process.kind == self.kind and event.type in (EventType.FAILED, EventType.BROKEN)
        if process.kind != self.kind or event.type is not EventType.FAILED or self.state.held:
            return
        if self._struck():
            self._failed = []
        self._failed.append(self.cluster.loop.now)

    def _struck(self) -> bool:
        """Whether something was struck since the last look."""
        before = self._blows
        self._blows = sum(self.cluster.storm.blows.values()) + sum(self.cluster.server.faults.values())
        return self._blows != before

    def _took(self, life: Life, process: Process) -> None:
        """A worker takes one of the kind: it may, as far as it can know. One in quarantine heeds no outage."""
        self._tried += process.kind == self.kind and self.state.held
        time = self.cluster.loop.now
        known = time - self._looked
        alone = any(node.alone for node in self.cluster.nodes if node.life is life)
        if process.kind != self.kind or alone or not self.cluster.wall.steady or life.struck_at >= known:
            return
        if self.state.held:
            self._took_of_a_held_kind(life, known)
            return
        enough = self._failed[self._rule.failures - 1 :][:1]
        if enough and enough[0] < known:
            if not self._struck():
                self.broken("outage_begins", f"{len(self._failed)} have failed alike, and {self.kind} goes on")
            self._failed = []  # whoever would have told of them may have been struck before
        seconds = time - self._over
        if seconds < DOUBLINGS * limits.OUTAGE_DOUBLED_SECONDS:
            self._let_go[life.number] += 1
            allowed = sum(2 ** int(n / limits.OUTAGE_DOUBLED_SECONDS) for n in range(int(seconds) + 2))
            if self._let_go[life.number] > allowed + MORE + len(self._failed):
                text = f"{life.name} takes {self._let_go[life.number]} within {seconds:.1f} s after the outage"
                self.broken("few_at_first", text)

    def _took_of_a_held_kind(self, life: Life, known: float) -> None:
        if self.state.circuit.state == HALF_OPEN:
            self._canaries += 1
            late = self._left if self._window >= known else 0
            self.cluster.probe("a canary was let through")
            if self._canaries > self._granted + late and self._changed < known:
                self.broken("outage_holds", f"{self._canaries} canaries, and {self._granted} were granted")
        elif self._changed < known:
            self.broken("outage_holds", f"{life.name} takes one of a kind that is held")
