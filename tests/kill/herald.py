"""A herald who publishes what happens at each stage; hosted by victims, which are killed around its commits."""

from __future__ import annotations

from perdure.authoring.workflow import receive, workflow
from perdure.turns.publication import publish, set_attributes
from tests.kill.workload import mark


@workflow
async def herald() -> int:
    total = 0
    publish("stage", 0)
    for n in (1, 2, 3):
        total += await mark(n)
        publish("stage", n)
        set_attributes(stage=n)
    return total


@workflow
async def listener() -> list[int]:
    heard = []
    while (word := await receive("word", int)) >= 0:
        publish("heard", word)
        heard.append(word)
    return heard
