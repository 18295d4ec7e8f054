"""A tenancy that never ends by itself: each month is a run of its own, and its code changes while tenants live there.

Run it with ``python -m examples.tenancy``. It needs nothing but a folder.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from perdure import Engine, Handle, attempt, continue_as_new, patched, receive, set_state, step, workflow

MONTHS = 3


@step
async def collect(tenant: str, euros: int) -> str:
    """Take the rent; the key is another one every month, however often it is tried."""
    run, place = attempt().idempotency_key.split("/")[1:]
    print(f"{tenant:4} pays {euros}, run {run}, {place}")
    return f"{euros} from {tenant}"


@workflow(name="tenancy", version="1")
async def tenancy_1(tenant: str, month: int = 1) -> str:
    """The code as it was first: the rent, then a month."""
    set_state({"month": month})
    await collect(tenant, 700)
    await receive("a month has passed")
    if month < MONTHS:
        continue_as_new(tenant, month + 1)
    return f"{tenant} moves out"


@workflow(name="tenancy", version="1")
async def tenancy_1_changed(tenant: str, month: int = 1) -> str:
    """The same version, with a change: whoever has not begun this month when it comes pays for heating first."""
    set_state({"month": month})
    if patched("heating"):
        await collect(tenant, 60)
    await collect(tenant, 700)
    await receive("a month has passed")
    if month < MONTHS:
        continue_as_new(tenant, month + 1)
    return f"{tenant} moves out"


@workflow(name="tenancy", version="2")
async def tenancy_2(tenant: str) -> str:
    """Another way as a whole, for those who come later: all at once."""
    return f"{await collect(tenant, MONTHS * 750)}, who moves out"


async def in_month(handle: Handle[str], month: int) -> None:
    """Look until the process waits in that month, as a person looks, from outside."""
    while not ((now := await handle.status()).state == {"month": month} and now.mover == "message"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def live(folder: Path) -> None:
    """Two deploys: one changes the code in front of Ann, one brings another way for Ben."""
    url = f"sqlite:///{folder}/house.db"
    async with Engine(url, work=True, workflows=[tenancy_1]) as engine:
        ann = await engine.start(tenancy_1.options(key="Ann"), "Ann")
        await in_month(ann, 1)
    async with Engine(url, work=True, workflows=[tenancy_1_changed, tenancy_2]) as engine:
        ann = await engine.handle("tenancy", "Ann")
        for month in (1, 2, 3):
            await in_month(ann, month)
            await ann.signal("a month has passed")
        ben = await engine.start(tenancy_2.options(key="Ben"), "Ben")
        print(await ann.result())
        print(await ben.result())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder)))
