"""Orders that come to a standstill in many ways."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from perdure import Breaker, Retry, receive, step, workflow

gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
bank = Breaker("bank", failures=2, open_for=3600, longest=3600)


@step(retry=Retry.NONE)
async def refuse(order: str) -> None:
    raise ConnectionError(f"no connection for order {order}")


@step(retry=Retry(attempts=5, first=3600.0, cap=3600.0, jitter=0.0))
async def falter(order: str) -> None:
    raise ConnectionError("not yet")


@step(retry=Retry(attempts=3, first=0.001, jitter=0.0))
async def decline(order: str) -> None:
    raise ConnectionError(f"order {order} is declined")


@step(retry=Retry(attempts=2, first=0.001, jitter=0.0), queue="till")
async def decline_at_the_till(order: str) -> None:
    raise ConnectionError(f"order {order} is declined at the till")


@step(retry=Retry(attempts=9, first=0.01, jitter=0.0), breaker=bank)
async def pay(order: str) -> None:
    raise ConnectionError("the bank is down")


@step
async def wait_at_gate(name: str) -> str:
    await gates[name].wait()
    return name


@step(queue="till", timeout=3600)
async def at_the_till(name: str) -> str:
    await gates[name].wait()
    return name


@workflow
async def refused(order: str) -> None:
    await refuse(order)


@workflow
async def declined(order: str) -> None:
    await decline(order)


@workflow
async def declined_at_the_till(order: str) -> None:
    await decline_at_the_till(order)


@step
async def give_back(order: str, result: str | None) -> None:
    """Undo a reservation."""


@step(undo=give_back)
async def reserve(order: str) -> str:
    return order


@workflow
async def reserved(order: str) -> None:
    await reserve(order)
    await refuse(order)


@workflow
async def faltering(order: str) -> None:
    await falter(order)


@workflow
async def paying(order: str) -> None:
    await pay(order)


@workflow
async def gated(name: str) -> str:
    return await wait_at_gate(name)


@workflow
async def queued(name: str) -> str:
    return await at_the_till(name)


@workflow
async def sleeping() -> None:
    await asyncio.sleep(3600)


@workflow
async def asking() -> str:
    return await receive("answer", str)


@workflow
async def forgetful() -> None:
    await asyncio.Event().wait()


@workflow
async def family(name: str) -> None:
    await {"asks": asking, "forgets": forgetful}[name].child()


@workflow
async def grandparent(name: str) -> None:
    await family.child(name)


@workflow
async def spoken() -> str:
    """What another version of this workflow, of another worker, has begun."""
    return await receive("name", str)


@step
async def nod() -> None: ...


@step
async def refuse_softly() -> None: ...
