"""Parcels whose rows are damaged by hand at rest: a check run finds each fault and mends it, in any weather."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import Handle, receive, step, workflow
from perdure.kernel.names import id_text
from perdure.kernel.process import FINAL, Process, Status
from perdure.testing.simulator import Cluster

PATIENCE = 400
"""So many looks, every half second, must suffice for a parcel to rest, or to end."""
FAR = 10**15
DAMAGES = {
    "unfinished_is_due": "UPDATE process SET due_at = NULL WHERE id = :id RETURNING 1",
    "reminder_is_near": f"UPDATE process SET due_at = due_at + {FAR} WHERE id = :id RETURNING 1",  # noqa: S608
    "one_transaction": "UPDATE process SET deaths = deaths + 50 WHERE id = :id RETURNING 1",
    "record_is_readable": "UPDATE process SET attributes = x'5b315d' WHERE id = :id RETURNING 1",
    "history_is_gapless": "DELETE FROM event WHERE process = :id AND number = 1 RETURNING 1",
}
"""By the check that finds it."""
PARKED = frozenset({"one_transaction", "record_is_readable", "history_is_gapless"})
"""After these no code runs: what is lost cannot be made up."""

begun: Counter[int] = Counter()


@step
async def weigh(parcel: int) -> int:
    begun[parcel] += 1
    await asyncio.sleep(0.05)
    return 100 * parcel


@workflow(name="damaged parcel")
async def parcel(number: int) -> int:
    grams = await weigh(number)
    return grams + await receive("label", int)


async def repairs(cluster: Cluster) -> None:
    """Some parcels come to rest, half of them are damaged, and a check run mends them while the storm goes on."""
    begun.clear()
    many = 2 * cluster.pick((2, 1, 4))
    handles = [await cluster.client.start(parcel, number) for number in range(many)]
    for handle in handles:
        await _seen(cluster, handle, _rests)
    weighed = Counter(begun)
    planted: dict[int, str] = {}
    for number in range(0, many, 2):
        name = cluster.pick(list(DAMAGES))
        if _rests(await cluster.client.row(handles[number].id_bytes)):
            cluster.damage(handles[number].id_bytes, DAMAGES[name])
            planted[number] = name
    previewed = await cluster.client.checks.preview(kind="damaged parcel")
    run = await cluster.client.checks.start(kind="damaged parcel", fix=True, rate=cluster.pick((None, 2.0)), who="Ann")
    await asyncio.sleep(cluster.pick((1.0, 5.0, 0.1)))
    cluster.heal()
    status = await run.result(600)
    cluster.require("a_check_run_ends", status.phase == "done", status)
    for name, number in Counter(planted.values()).items():
        cluster.require("a_fault_is_found", previewed.found.get(name) == number, f"{name}: {previewed.found}")
        cluster.probe(f"mended: {name}")
    damaged = {handles[number].id for number in planted}
    findings = await cluster.client.checks.findings(gone=True)
    told = {(one.process, one.check) for one in findings}
    cluster.require("a_fault_is_found", {one.process for one in findings} == damaged, told)
    for number, name in planted.items():
        cluster.require("a_fault_is_found", (handles[number].id, name) in told, f"{name} of parcel {number}: {told}")
    for number, handle in enumerate(handles):
        await _looked_at(cluster, number, handle, planted.get(number, ""))
        cluster.require("nothing_is_done_again", begun[number] == weighed[number], f"parcel {number} is weighed again")


async def _looked_at(cluster: Cluster, number: int, handle: Handle[int], name: str) -> None:
    """What could be mended goes on, and what cannot is parked, and can be ended."""
    row = await cluster.client.row(handle.id_bytes)
    if name in PARKED:
        parked = row.status is Status.BROKEN
        cluster.require("what_is_damaged_is_parked", parked, f"parcel {number} ({name}) is {row.status}")
        await handle.terminate(who="Ann", why="it is damaged")
        return
    mended = row.status is Status.RUNNING and row.due_at is not None and row.due_at < FAR + row.created_at
    cluster.require("what_can_be_mended_is", mended, f"parcel {number} ({name}): {row!r:.500}")
    await handle.signal("label", 7)
    row = await _seen(cluster, handle, lambda row: row.status in FINAL)
    cluster.require("the_value_is_exact", row.result == str(100 * number + 7).encode(), f"{number}: {row.result!r}")


async def _seen(cluster: Cluster, handle: Handle[int], wanted: object) -> Process:
    for _ in range(PATIENCE):
        row = await cluster.client.row(handle.id_bytes)
        if wanted(row):  # type: ignore[operator]
            return row
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"process {id_text(handle.id_bytes)} does not come to rest")
    raise AssertionError


def _rests(row: Process) -> bool:
    return row.status is Status.RUNNING and row.owner is None and row.reminder and row.events > 0
