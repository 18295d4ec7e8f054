"""Postings by steps with a transaction, in every weather: a row for each result that is recorded, and no other."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import Retry, attempt, step, workflow
from perdure.kernel.event import EventType
from perdure.kernel.message import result_id
from perdure.testing.simulator import Cluster

ROWS = "CREATE TABLE posting (key TEXT NOT NULL)"


@step(transaction=True, retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=60)
async def post(number: int, fails: int) -> int:
    """Write a row, and then fail so many times: what was written is not there."""
    here = attempt()
    await here.connection.execute("INSERT INTO posting (key) VALUES (?)", here.idempotency_key)
    await asyncio.sleep(0.2)
    if here.number <= fails:
        raise ConnectionError("not yet")
    return number


@workflow
async def postings(first: int, fails: int) -> int:
    one, two = await asyncio.gather(post(first, fails), post(first + 1, 0))
    await asyncio.sleep(0.3)
    return one + two + await post(first + 2, 0)


async def transactions(cluster: Cluster) -> None:
    """Some processes that post three times each; at the end rows and results are counted."""
    connection = cluster.server.connection
    assert connection is not None
    connection.raw.execute(ROWS)
    cases = [(10 * number, cluster.draw(3)) for number in range(cluster.pick((1, 3, 6)))]
    handles = [await cluster.client.start(postings, *case) for case in cases]
    for (first, _), value in zip(cases, await cluster.client.results(handles), strict=True):
        cluster.require("the_value_is_exact", value == 3 * first + 3, f"{first} came to another value")
    await asyncio.sleep(30)  # who was paused comes back with late results
    cluster.heal()
    await cluster.settled()
    await judge(cluster)


async def judge(cluster: Cluster) -> None:
    """Rows and results belong together one to one, and every result that a history records is one of them."""
    connection = cluster.server.connection
    assert connection is not None
    rows = Counter(key for (key,) in connection.raw.execute("SELECT key FROM posting"))
    twice = [key for key, times in rows.items() if times > 1]
    cluster.require("effect_once", not twice, f"{twice} were posted more than once")
    results: set[bytes] = set()
    for row in cluster.rows():
        known = {message.id for message in await cluster.client.store.messages([(row.id, 0)])}
        results |= known
        events = await cluster.client.store.history(row.id, row.run)
        done = [event for event in events if event.type is EventType.STEP_COMPLETED]
        cluster.require("effect_with_result", len(done) == 3 <= len(known), f"{len(done)} of 3 results are recorded")
    posted = {result_id(key) for key in rows}
    cluster.require("effect_with_result", posted == results, f"{len(posted)} rows and {len(results)} results")
