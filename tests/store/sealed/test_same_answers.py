"""The same random operations on a sealed store and on the model: the same answers, the same rows, no law broken."""

from __future__ import annotations

import pytest

from perdure.testing.conformance import Ground
from tests.store.script import Script
from tests.store.sealed.ground import SealedGround, codecs
from tests.store.test_same_answers import Actor

STEPS = 300


@pytest.mark.parametrize("seed", range(4))
async def test_the_same_script_has_the_same_answers_on_a_sealed_store(sqlite_memory: Ground, seed: int) -> None:
    script = Script(seed)
    ground = SealedGround(sqlite_memory, codecs())
    store = ground.store()
    await store.open()
    try:
        actor = Actor(ground, store)
        for _ in range(STEPS):
            await actor.play(script.next(), script.model)
        await actor.end(script.model)
    finally:
        await store.close()
