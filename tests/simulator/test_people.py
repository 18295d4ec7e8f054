"""People order processes about, on ordinary engines without faults: what they come to is always what is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure import Engine
from perdure.kernel.names import id_text
from tests.simulator import evidence, oracle
from tests.simulator.chance import Seeded
from tests.simulator.ledger import Desk, Ledger
from tests.simulator.person import VERBS, Ask, Case, Person, case
from tests.simulator.play import registry
from tests.simulator.program import FEATURES, Drawing, Taste
from tests.simulator.settling import Settling

LIMIT = 90.0


@pytest.fixture
async def engines(store_url: str) -> AsyncIterator[list[Engine]]:
    Desk.ledger = Ledger()
    one, other = (Engine(store_url, work=True, registry=registry()) for _ in range(2))
    async with one, other:
        yield [one, other]
    Desk.ledger = Ledger()


def drawn(seed: int) -> Case:
    chance = Seeded(seed)
    taste = Taste(frozenset(FEATURES), breadth=3, depth=3, scale=0.1)
    program = Drawing(chance, taste, f"p{seed}").program()
    made = case(chance, f"c{seed}", ("play", "edition")[chance.draw(2)], program, frozenset((*VERBS, "deadline")), 0.5)
    made.facts.calm = False
    made.after /= 20
    return made


async def test_whatever_people_order_the_processes_come_to_an_allowed_end(engines: list[Engine]) -> None:
    cases = [drawn(seed) for seed in range(80)]
    seen: list[str] = []
    asked = 0

    async def reach(ask: Ask) -> object:
        nonlocal asked
        asked += 1
        return await ask(engines[asked % 2])

    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(Person(one, reach, Desk.ledger, seen.append).act() for one in cases))
        await Settling(cases, reach, Desk.ledger, evidence.KINDS).settle()
    everything = await evidence.collected(engines[0].store)
    found = evidence.findings(everything, Desk.ledger, calm=False)
    found = [*found, *(f for c in cases for f in oracle.judge(everything[c.id_bytes].row, c.program, c.facts))]
    assert [f"{finding.law}: {id_text(finding.subject)}: {finding.text}" for finding in found] == []
    assert {text for text in seen if text.startswith("VIOLATION")} == set()
