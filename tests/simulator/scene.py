"""A scene: one history of the simulator, drawn whole: programs, people, deployments; judged when all is settled."""

from __future__ import annotations

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.exhaustion import DESCRIPTORS
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.soundness import Finding
from perdure.testing.simulator import Cluster, Node
from tests.simulator import continuity, evidence, oracle, probes
from tests.simulator.chance import Chance, one_of
from tests.simulator.core_sweeps import small_pages
from tests.simulator.evidence import Evidence
from tests.simulator.ledger import Desk, Ledger
from tests.simulator.person import VERBS, WHY, Ask, Case, Person, case
from tests.simulator.play import NEW, QUEUE, VERSIONED, VERSIONS, registry
from tests.simulator.program import FEATURES, LATER, Drawing, Taste
from tests.simulator.reasons import require_a_reason, root_of
from tests.simulator.settling import Settling, Standstill
from tests.simulator.witness import Witness

WORKFLOWS = (NEW, *VERSIONED.values())
DEPLOYMENTS = ("none", "patch", "edition")
LEAP_HOURS = 30
PATIENCE_SECONDS = 60.0
"""In some weather nothing can be done at all: what people have not done by then, they do when it is over."""


class Plan(Struct):
    """What a history is about, beside its weather: each of these is drawn.

    ``deployment`` says which change of the code comes in the middle of it; ``unserved`` that some nodes serve no queue,
    ``leap`` that the clock leaps by more than a day, so that whatever was put off for long is looked at.
    """

    taste: Taste
    verbs: frozenset[str]
    processes: int
    deployment: str
    seconds: float
    unserved: bool
    leap: bool

    @classmethod
    def drawn(cls, cluster: Cluster) -> Plan:
        """A plan by chance; the boring one is one process of one step."""
        features = frozenset(feature for feature in FEATURES if _of(cluster, feature).draw(2))
        return cls(
            taste=Taste(features, breadth=one_of(cluster, (1, 2, 3)), depth=one_of(cluster, (1, 2, 3))),
            verbs=frozenset(verb for verb in (*VERBS, "deadline") if cluster.draw(2)),
            processes=one_of(cluster, (1, 3, 5, 10)),
            deployment=one_of(cluster, DEPLOYMENTS),
            seconds=one_of(cluster, (2.0, 5.0, 15.0)),
            unserved=cluster.draw(4) == 3,
            leap=cluster.draw(12) == 11,
        )


class Apart:
    """Draws for one part of a history: what is taken back there moves nothing elsewhere."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self._cluster = cluster
        self._kind = kind

    def draw(self, n: int) -> int:
        return self._cluster.choices.draw(n, self._kind)


def _of(cluster: Cluster, feature: str) -> Chance:
    return Apart(cluster, feature) if feature in LATER else cluster


class Scene:
    """Plays one plan on a cluster. ``cases`` are its processes, ``upgraded`` says that the change has been deployed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.plan = Plan.drawn(cluster)
        loop = cluster.loop
        self.ledger = Ledger(lambda: int(loop.now * 1_000_000), lambda: loop.current().name, loop.current)
        self.upgraded = self.plan.deployment == "none"
        self.cases = [self._case(number) for number in range(self.plan.processes)]
        self._served = 0
        cluster.registry = self._registry  # type: ignore[method-assign]  # each node's code is that of its start
        self.witness = Witness(cluster)
        self.ledger.seen = self.witness.saw
        hangs = Apart(cluster, "hangs").draw(4) == 3  # in such a history what kills elsewhere blocks its loop for ever
        Desk.ledger, Desk.die = self.ledger, self._hang if hangs else cluster.die
        Desk.threads = cluster.swarm.refusals > 0
        Desk.starved = lambda: loop.current().refuses(DESCRIPTORS, loop.now)  # type: ignore[method-assign]

    async def _hang(self) -> None:
        self.cluster.probe("a loop was blocked for ever")
        await self.cluster.hang()

    def _case(self, number: int) -> Case:
        chance = Apart(self.cluster, f"case {number}")
        kind = one_of(chance, ("play", "edition"))
        program = Drawing(chance, self.plan.taste, f"p{number}").program()
        made = case(chance, f"c{number}", kind, program, self.plan.verbs, self.plan.seconds)
        made.facts.calm = False
        made.facts.old = self.plan.deployment == "patch" and kind == "play"
        return made

    def _registry(self) -> Registry:
        """What a node that starts now hosts. The first one always serves the queue."""
        self._served += 1
        old = not self.upgraded
        versions = VERSIONS[:1] if old and self.plan.deployment == "edition" else VERSIONS
        queues = self.upgraded or not self.plan.unserved or self._served % 2 == 1
        return registry(old=old and self.plan.deployment == "patch", versions=versions, queues=queues)

    # -- playing -----------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """The whole history, from the first start to the judgement."""
        cluster = self.cluster
        tasks = [
            cluster.loop.create_task(Person(one, self._reach, self.ledger, cluster.probe).act()) for one in self.cases
        ]
        if not self.upgraded:
            tasks.append(cluster.loop.create_task(self._deploy()))
        if self.plan.leap:
            tasks.append(cluster.loop.create_task(self._leap()))
        tasks.append(cluster.loop.create_task(self._limit()))
        await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
        cluster.heal()
        for task in tasks:
            await task
        self.upgraded = True
        for node in cluster.workers:
            if not node.alone:
                await self._renew(node)
        try:
            await Settling(self.cases, self._ask_quietly, self.ledger, evidence.KINDS, self._looked_at).settle()
        except Standstill as standstill:
            cluster.require("liveness", False, str(standstill))
        self.judge(await evidence.collected(cluster.client.store))

    def _looked_at(self, row: Process) -> bytes:
        require_a_reason(self.cluster, row)
        return root_of(self.cluster, row)

    async def _deploy(self) -> None:
        """In the middle of it the code changes: nodes that start later have the new one, some are stopped for that."""
        await asyncio.sleep(self.plan.seconds * one_of(self.cluster, (0.5, 0.1, 1.0)))
        self.upgraded = True
        self.cluster.note("the new code is deployed")
        for node in self.cluster.workers:
            if not node.alone and self.cluster.draw(2):
                await self._renew(node)

    async def _leap(self) -> None:
        """The clock leaps forward: every lease and every reminder is over at once."""
        await asyncio.sleep(self.plan.seconds * one_of(self.cluster, (0.5, 1.0)))
        self.cluster.wall.jump(LEAP_HOURS * 3600.0)
        self.cluster.note(f"the wall clock leaps by {LEAP_HOURS} hours")

    async def _limit(self) -> None:
        """Somebody limits the queue, or blocks it for a while."""
        chance, queues = Apart(self.cluster, "limits"), self.cluster.client.queues
        ways = ("none", "concurrency", "block", "rate") if "queue" in self.plan.taste.features else ("none",)
        way = one_of(chance, ways)
        if way == "none":
            return
        await asyncio.sleep(self.plan.seconds * one_of(chance, (0.0, 0.0, 0.1, 0.5)))
        self.cluster.probe("a queue was limited")
        if way == "block":
            await queues.block(QUEUE, who="Ann", why=WHY)
            await asyncio.sleep(one_of(chance, (1.0, 10.0)))
            await queues.unblock(QUEUE, who="Ann", why=WHY)
        elif way == "rate":
            await queues.limit(QUEUE, rate=1, per=one_of(chance, (0.5, 2.0)), who="Ann", why=WHY)
        else:
            await queues.limit(QUEUE, concurrency=1 + chance.draw(2), who="Ann", why=WHY)

    async def _renew(self, node: Node) -> None:
        """Have a node start anew, with the code of today."""
        if node.engine is None:  # nobody listens there yet
            node.kill()
        else:
            node.terminate()
            await node.ended()
        node.start()

    async def _reach(self, ask: Ask) -> object:
        """Ask by one of the nodes that are there."""
        found = [node for node in self.cluster.nodes if node.alive and node.engine is not None and not node.alone]
        return await one_of(self.cluster, found).call(ask)

    async def _ask_quietly(self, ask: Ask) -> object:
        return await ask(self.cluster.client)

    # -- judging -----------------------------------------------------------------------------------------------------

    def judge(self, everything: dict[bytes, Evidence]) -> None:
        """Raise Violation for the first thing that must not be; count what has been reached."""
        cluster = self.cluster
        found = [
            *self._accepted(everything),
            *self._carried_out(everything),
            *evidence.findings(everything, self.ledger, calm=False),
            *continuity.findings(everything, self.ledger),
            *evidence.faults_by_shortage(everything),
        ]
        roots = {one.id_bytes: one for one in self.cases if one.id}
        mended = {one.id_bytes for one in self.cases if one.id and one.facts.mended}
        for id, one in everything.items():
            if one.row.kind not in ("play", "edition"):
                continue
            known = roots.get(id)
            old = self.plan.deployment == "patch" and one.row.kind == "play"
            of_mended = root_of(cluster, one.row) in mended
            kin = oracle.Facts(calm=False, cancelled=True, mended=of_mended, old=old)
            facts = kin if known is None else known.facts
            facts = replace(facts, bereft=one.bereft)
            found += oracle.judge(one.row, evidence.program_of(one.row), facts)
        for finding in found:
            cluster.require(finding.law, False, f"{id_text(finding.subject)}: {finding.text}")
        for name in probes.reached(everything, cluster):
            cluster.probe(name)
        for name in list(cluster.probes):
            cluster.require("people_are_told_the_truth", not name.startswith("VIOLATION"), name)

    def _accepted(self, everything: dict[bytes, Evidence]) -> list[Finding]:
        """What was answered to starts: one process for each key, made once, and still there."""
        found = []
        for one in self.cases:
            rows = [e.row for e in everything.values() if (e.row.kind, e.row.key) == (one.kind, one.key)]
            ids = {id for id, _ in one.answers}
            if len(rows) != 1 or ids != {id_text(rows[0].id)}:
                text = f"{len(rows)} processes have the key {one.key}; the answers named {sorted(ids)}"
                found.append(Finding("accepted_is_kept", b"", text))
            elif sum(created for _, created in one.answers) > 1:
                found.append(Finding("accepted_is_kept", rows[0].id, "its start was answered as the first one twice"))
        return found

    def _carried_out(self, everything: dict[bytes, Evidence]) -> list[Finding]:
        """What was answered to commands: each was carried out, and none more often than somebody has asked for it."""
        found = []
        for one in self.cases:
            evidence = everything.get(one.id_bytes)
            marks = dict.fromkeys(("restart", "terminate", "hold", "cancel"), 0)
            for verb, times in (marks if evidence is None else evidence.marks(WHY)).items():
                if times < one.told[verb] or (times > one.ordered[verb] and verb != "hold"):
                    text = f"{verb} was asked for {one.ordered[verb]} times, told to be done {one.told[verb]} times"
                    found.append(Finding("orders_are_carried_out", one.id_bytes, f"{text}, and done {times} times"))
        return found


async def scene(cluster: Cluster) -> None:
    """The scenario that the simulator is handed; in some histories sweeps read no more than two rows at once."""
    with small_pages(cluster.choices.pick((limits.SWEEP_ROWS, 2), "pages")):
        await Scene(cluster).play()
