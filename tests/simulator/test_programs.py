"""Programs without faults on ordinary engines: each comes to exactly what pure interpretation says, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from perdure import Engine, Handle
from perdure.kernel.names import id_text
from tests.simulator import continuity, evidence, oracle
from tests.simulator.chance import Boring, Seeded
from tests.simulator.ledger import Desk, Ledger
from tests.simulator.play import letter, registry
from tests.simulator.program import FEATURES, Do, Drawing, Hear, Program, Taste, nodes
from tests.simulator.settling import Settling

LIMIT = 60.0
PARKS = frozenset({"undo fatal"})
"""A process whose undo fails for good waits for a person; its parent, for it."""


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    Desk.ledger = Ledger()
    yield Desk.ledger
    Desk.ledger = Ledger()


def drawn(seed: int, features: frozenset[str]) -> Program:
    taste = Taste(features, breadth=3, depth=3, scale=0.01)
    return Drawing(Seeded(seed), taste, f"p{seed}").program()


async def send_letters(handle: Handle[object], program: Program) -> None:
    """Every signal that the program hears, in order; each twice, under one key."""
    for node in {n.name: n for n in nodes(program.body, children=False) if isinstance(n, Hear)}.values():
        if node.timeout is None and node.name.startswith("letter"):
            for number in range(1, node.count * program.rounds + 1):
                for _ in range(2):
                    await handle.signal(node.name, letter(node.name, number), key=f"{node.name}/{number}")


async def test_the_boring_program_is_one_step(sqlite_url: str, ledger: Ledger) -> None:
    program = Drawing(Boring(), Taste(frozenset(FEATURES)), "p").program()
    assert program == Program(Do("p.1"))
    async with Engine(sqlite_url, work=True, registry=registry()) as engine:
        assert await (await engine.start("play", program)).result(LIMIT) == ["p.1"]
    assert [effect.kind for effect in ledger.effects] == ["began", "done"]


async def test_without_faults_every_program_comes_to_its_one_right_end(store_url: str, ledger: Ledger) -> None:
    programs = [drawn(seed, frozenset(FEATURES) - PARKS) for seed in range(40)]
    async with Engine(store_url, work=True, registry=registry()) as engine:
        handles = [await engine.start("play", program) for program in programs]
        await asyncio.gather(*map(send_letters, handles, programs))
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
            await Settling([], lambda ask: ask(engine), ledger, evidence.KINDS).settle()
        everything = await evidence.collected(engine.store)
    found = [*evidence.findings(everything, ledger, calm=True), *continuity.findings(everything, ledger)]
    for handle, program in zip(handles, programs, strict=True):
        found += oracle.judge(everything[handle.id_bytes].row, program, oracle.Facts())
    assert [f"{finding.law}: {id_text(finding.subject)}: {finding.text}" for finding in found] == []
    assert {one.row.kind for one in everything.values()} == {"play", "@far"}
