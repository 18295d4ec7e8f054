"""What was removed before a stream had it comes all the same, however long ago it was written."""

from __future__ import annotations

from datetime import timedelta

from perdure import testing
from tests.streams.flows import HOSTED, parcel
from tests.streams.test_streams import drained, types


async def test_a_removed_fork_of_an_old_process_is_handed_on_whole() -> None:
    async with testing.engine(workflows=HOSTED) as engine:
        old = await engine.start(parcel, "tea")
        await old.result()
        await engine.sleep(timedelta(days=3))
        await engine.streams.put("audit")
        fork = await old.fork()
        await fork.result()
        await fork.remove()
        records = await drained(engine)
        assert "lost" not in types(records)
        assert [one.payload for one in records if one.type == "step_completed"] == [
            "tea, packed",
            "tea, packed, packed",
        ]
        assert types(records)[-1] == "removed"
