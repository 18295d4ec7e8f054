"""What an operator sees of a family: perdure tree, on both stores."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Engine, Retry, receive, step, workflow
from tests.cli.conftest import PACE
from tests.cli.terminal import Terminal


@step(queue="scales", retry=Retry.NONE)
async def weigh_in_tree(grams: int) -> int:
    if grams < 0:
        raise ValueError("lighter than nothing")
    return grams


@workflow
async def parcel_in_tree(grams: int) -> int:
    return await weigh_in_tree(grams)


@workflow
async def truck_in_tree(parcels: list[int]) -> list[Any]:
    weights = await asyncio.gather(*(parcel_in_tree.child(grams) for grams in parcels), return_exceptions=True)
    await receive("go")
    return [weight for weight in weights if isinstance(weight, int)]


def _loaded(url: str, parcels: list[int]) -> None:
    async def load() -> None:
        async with Engine(
            url, work=True, workflows=[truck_in_tree, parcel_in_tree], queues=["scales"], options=PACE
        ) as engine:
            handle = await engine.start(truck_in_tree.options(key="T-1"), parcels)
            async with asyncio.timeout(20):
                while "signal go" not in (await handle.status()).waiting:
                    await asyncio.sleep(0.001)

    asyncio.run(load())


def test_a_process_is_shown_as_a_tree_with_states_and_times(terminal: Terminal) -> None:
    _loaded(terminal.url, [300, -1])
    said = terminal("tree", "T-1")
    assert said.code == 0
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines[0].startswith("truck_in_tree T-1 running began ")
    assert lines[0].endswith("it waits for signal go")
    assert lines[1].startswith("├── parcel_in_tree:1 completed took ")
    assert lines[2].startswith("│ └── weigh_in_tree:1 completed took ")
    assert lines[3].startswith("└── parcel_in_tree:2 failed took ")
    assert lines[4].startswith("└── weigh_in_tree:1 failed took ")
    assert "lighter than nothing" in lines[4]
    assert lines[-1] == "5 processes: 1 running, 2 completed, 2 failed"
    tree = terminal("tree", "T-1", "--json").json
    [first, second] = tree["children"]
    assert (first["asked_as"], first["status"], second["status"]) == ("parcel_in_tree:1", "completed", "failed")
    assert first["children"][0]["kind"] == "@scales"


def test_a_large_tree_is_cut_and_says_so(terminal: Terminal) -> None:
    _loaded(terminal.url, [1, 2, 3, 4])
    said = terminal("tree", "T-1", "--limit", "3")
    assert said.out.count("parcel_in_tree:") == 2
    assert said.has("3 processes: 1 running, 2 completed") and "more: --limit 1000" in said.out
    assert terminal("tree", "T-1", "--limit", "3", "--json").json["more"] >= 1
    assert terminal("tree", "T-1", "--json").json["more"] == 0
    assert terminal("tree", "T-1", "--limit", "0").code == 2


def test_a_trace_and_the_changes_of_status_are_shown(terminal: Terminal) -> None:
    _loaded(terminal.url, [300, -1])
    said = terminal("trace", "T-1")
    assert said.code == 0
    rows = [" ".join(line.split()) for line in said.out.splitlines()]
    assert any("child parcel_in_tree:1 completed" in row and "[300]" in row for row in rows)
    steps = terminal("trace", "T-1", "--json").json
    assert sorted((one["what"], one["status"], one["result"]) for one in steps if one["status"] == "completed") == [
        ("child", "completed", 300)
    ]
    terminal("terminate", "T-1", "--who", "ann", "--why", "by mistake")
    changes = terminal("history", "T-1", "--statuses", "--json").json
    assert [(one["was"], one["status"], one["who"]) for one in changes] == [
        (None, "running", ""),
        ("running", "cancelled", "ann"),
    ]
    assert "by mistake" in terminal("history", "T-1", "--statuses").out
