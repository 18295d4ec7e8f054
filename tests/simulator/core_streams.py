"""Event streams in every weather: what a sink has got of a process is its history, in order, with nothing left out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from perdure import Handle, Retry, continue_as_new, receive, step, workflow
from perdure.errors import IllegalMove, Permanent, ProcessNotFound
from perdure.kernel.names import id_bytes
from perdure.kernel.process import FINAL, Status
from perdure.kernel.stream import LOST, type_text
from perdure.streaming import sink
from perdure.streaming.record import StreamRecord
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

SINK = "https://ledger.example/audit"


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=30)
async def entered(number: int, seconds: float) -> int:
    """Take a while; some entries cannot be made."""
    await asyncio.sleep(seconds)
    if number % 5 == 4:
        raise Permanent("the page is torn")
    return number


@workflow
async def page(number: int, seconds: float, waits: bool, again: int = 0) -> int:
    """Some steps, a signal perhaps, and perhaps the same once more as a new run."""
    for _ in range(3):
        await entered(number, seconds)
    if waits:
        with suppress(TimeoutError):
            await receive("go", timeout=6)
    if again:
        continue_as_new(number, seconds, waits, again - 1)
    return number


class Ledger:
    """The sink: what it has written down outlives every node. Sometimes it is slow, or refuses before or after."""

    def __init__(self, cluster: Cluster, lines: list[StreamRecord]) -> None:
        self._cluster = cluster
        self._lines = lines

    async def deliver(self, stream: str, records: Sequence[StreamRecord]) -> None:
        """See Sink."""
        await asyncio.sleep(self._cluster.pick((0, 0.01, 0.4, 20.0)))
        trouble = self._cluster.draw(8)
        if trouble == 0:
            raise OSError("the ledger is shut")
        self._lines += records
        if trouble == 1:
            raise OSError("the ledger did not answer")

    async def close(self) -> None:
        """See Sink."""


async def audit(cluster: Cluster) -> None:
    """Some pages are written while workers deliver the stream; at the end the ledger knows what the histories say."""
    lines: list[StreamRecord] = []
    before = sink.sink_for
    sink.sink_for = lambda url: Ledger(cluster, lines)
    try:
        await cluster.client.streams.put("audit", to=SINK)
        handles: list[Handle[int]] = []
        for number in range(cluster.pick((3, 5, 9))):
            seconds, waits, again = cluster.pick((0.1, 0.6, 2.0)), cluster.draw(2) == 1, cluster.pick((0, 0, 1))
            handles.append(await cluster.client.start(page, number, seconds, waits, again))
        removed = set(await asyncio.gather(*(treated(cluster, handle) for handle in handles)))
        await _ended(cluster, handles)
        view = await cluster.client.streams.state("audit")
        for _ in range(600):
            if not view.behind:
                break
            await asyncio.sleep(1)
            view = await cluster.client.streams.state("audit")
        cluster.require("everything_ends", not view.behind, f"the stream stands at {view}")
        for handle in handles:
            await _judge(cluster, handle.id, lines, removed=handle.id in removed)
        await cluster.client.streams.remove("audit")
    finally:
        sink.sink_for = before


async def treated(cluster: Cluster, handle: Handle[int]) -> str | None:
    """What a person does to a page; the answer is its id if it was removed."""
    await asyncio.sleep(cluster.pick((0, 0.3, 1.0, 2.5)))
    verb = cluster.draw(7)
    with suppress(IllegalMove):  # it has ended, or the command was carried out and its answer was lost
        if verb == 0:
            await handle.terminate(who="anna")
        elif verb == 1:
            await handle.cancel()
        elif verb == 2:
            await handle.hold(who="anna")
            await asyncio.sleep(1)
            await handle.resume(who="anna")
        elif verb == 3:
            await handle.restart(who="anna")
        elif verb == 4:
            await handle.signal("go")
        elif verb == 5:
            await handle.remove(force=True, who="anna")
            return handle.id
    return None


async def _ended(cluster: Cluster, handles: list[Handle[int]]) -> None:
    """Wait for every end; a person lets go on what the weather alone has parked or left on hold."""
    for _ in range(300):
        going = 0
        for handle in handles:
            with suppress(ProcessNotFound, IllegalMove):
                row = await cluster.client.row(handle.id)
                going += row.status not in FINAL
                if row.status is Status.BROKEN:
                    innocent = by_the_weather_alone(cluster, row)
                    cluster.require("everything_ends", innocent, f"a page is broken: {row.error!r}")
                    await handle.retry(who="anna")
                elif row.status is Status.HELD:
                    await handle.resume(who="anna")
        if not going:
            return
        await asyncio.sleep(1)
    cluster.require("everything_ends", False, "pages do not end")


async def _judge(cluster: Cluster, id: str, lines: list[StreamRecord], *, removed: bool) -> None:
    """Compare what the ledger holds of one process with its history."""
    first: dict[int, StreamRecord] = {}
    for line in lines:
        if line.process == id:
            first.setdefault(line.position, line)
    told = list(first.values())
    positions = list(first)
    cluster.require("in_order", positions == sorted(positions), f"of {id} came {[one.type for one in told]}")
    cluster.require("accepted_is_kept", all(one.type != LOST for one in told), f"of {id} came {told}")
    runs: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in told:
        if one.number:
            runs[one.run].append((one.number, one.type))
    types = [one.type for one in told if not one.number]
    cluster.require("accepted_is_kept", types[:1] == ["created"], f"{id} began with {types}")
    gone = False
    try:
        row = await cluster.client.row(id)
    except ProcessNotFound:
        gone = True
    cluster.require(
        "accepted_is_kept", gone == (types[-1] == "removed"), f"{id} is gone: {gone}; it ended with {types}"
    )
    cluster.require("accepted_is_kept", gone or not removed, f"{id} was removed and is there")
    for run, events in runs.items():
        numbers = [number for number, _ in events]
        whole = numbers == list(range(1, len(numbers) + 1))
        cluster.require("history_is_gapless", whole, f"of run {run} of {id} came {numbers}")
    if not gone:
        for run in range(1, row.run + 1):
            history = await cluster.client.store.history(id_bytes(id), run)
            wanted = [(event.number, type_text(event.type)) for event in history]
            cluster.require("accepted_is_kept", runs[run] == wanted, f"of {id} came {runs[run]}, it was {wanted}")
