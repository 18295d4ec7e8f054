"""Event streams in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure.streaming import sink
from perdure.streaming.record import StreamRecord
from perdure.testing.simulator import Cluster, Swarm, simulate
from tests.simulator.core_streams import SINK, audit, page
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_a_sink_gets_what_the_histories_say_in_order_in_any_weather(seed: int) -> None:
    simulate(audit, seed, workflows=[page]).check()


@pytest.mark.long
def test_a_history_with_a_stream_is_repeated_to_the_byte() -> None:
    one = simulate(audit, 2, workflows=[page]).check()
    assert one.digest() == simulate(audit, 2, workflows=[page]).digest()


class CutOff:
    """A sink that needs a second for a batch, while more is committed. Then its worker is cut off from the store."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def deliver(self, stream: str, records: Sequence[StreamRecord]) -> None:
        """See Sink."""
        await asyncio.sleep(1)
        [worker] = self._cluster.workers
        assert worker.life is not None
        if self._cluster.loop.now < 10:
            self._cluster.server.cut(worker.life, 8.0, hangs=False)
            self._cluster.probe("cut off")

    async def close(self) -> None:
        """See Sink."""


async def cut_off_while_delivering(cluster: Cluster) -> None:
    sink.sink_for = lambda url: CutOff(cluster)
    await cluster.client.streams.put("audit", to=SINK)
    handle = await cluster.client.start(page, 1, 0.6, False)
    await handle.result()
    while (await cluster.client.streams.state("audit")).behind:
        await asyncio.sleep(1)


def test_a_worker_without_a_database_waits_before_it_moves_the_position_of_a_stream_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink, "sink_for", sink.sink_for)  # the scenario puts another one in its place
    history = simulate(cut_off_while_delivering, workflows=[page], swarm=Swarm(nodes=1)).check()
    assert history.probes["cut off"]
    assert sum("waits for the database" in line for line in history.log.lines()) < 20
