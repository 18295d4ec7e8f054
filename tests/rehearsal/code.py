"""A workflow and a machine of several releases: each function makes them anew, as their module would be then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from perdure import Permanent, Retry, Workflow, continue_as_new, machine, patched, receive, step, workflow

done: Counter[str] = Counter()
"""How often each effect was made."""
broken: set[str] = set()
"""The steps that fail."""


@step
async def charge(order: str) -> str:
    done[f"charge {order}"] += 1
    return f"paid {order}"


@step
async def check(order: str) -> None:
    done[f"check {order}"] += 1


@step
async def ship(order: str) -> str:
    done[f"ship {order}"] += 1
    return f"sent {order}"


def sale(release: str = "first", version: str = "1") -> Workflow[[str], str]:
    """The workflow in a release."""

    async def first(order: str) -> str:
        await charge(order)
        await receive("packed", str)
        return await ship(order)

    async def longer(order: str) -> str:
        await charge(order)
        await receive("packed", str)
        await ship(order)
        return await ship("again")

    async def misfitting(order: str) -> str:
        await check(order)
        return await first(order)

    async def patching(order: str) -> str:
        if patched("checked"):
            await check(order)
        return await first(order)

    async def refusing(order: str) -> str:
        await charge(order)
        raise Permanent(f"no more orders like {order!r}")

    async def numbered(order: int) -> str:  # type: ignore[misc]
        return await first(str(order))

    chosen: Callable[..., Any] = locals()[release]
    return workflow(name="sale", version=version)(chosen)


def shelf(release: str = "first") -> Any:
    """The class of a machine in a release."""
    if release == "first":

        class First(machine.Machine, name="shelf", version="1"):
            items: int = 0

            @machine.init
            def built(self) -> None:
                pass

            @machine.call
            async def put(self, number: int) -> int:
                self.items += number
                return self.items

        return First

    class Second(machine.Machine, name="shelf", version="1", form=2):
        boxes: int = 0

        @machine.init
        def built(self) -> None:
            pass

        @classmethod
        def upgraded(cls, fields: dict[str, Any], form: int) -> dict[str, Any]:
            if release == "broken":
                raise KeyError("dozens")
            return {"boxes": fields["items"] // 12}

    return Second


@step(queue="packing")
async def pack(order: str) -> str:
    done[f"pack {order}"] += 1
    return f"packed {order}"


@workflow(name="parcel", version="1")
async def parcel(order: str) -> str:
    await receive("go", str)
    return await pack(order)


@workflow(name="delivery", version="1")
async def delivery(order: str) -> str:
    await charge(order)
    return await parcel.child(order)


@workflow(name="paid", version="1")
async def paid(order: dict[str, str], *, gift: str = "") -> str:
    return await charge(order["id"]) + gift


@step(retry=Retry(attempts=1))
async def count(items: int) -> None:
    if "count" in broken:
        raise OSError("no scales")


@workflow(name="collecting", version="1")
async def collecting(items: int, *, again: bool = False) -> list[int]:
    await receive("go")
    if again:
        continue_as_new(items)
    await count(items)
    return [await receive("item", int) for _ in range(items)]
