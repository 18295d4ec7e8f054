"""The workflows whose histories are kept: what stands here is never changed, for histories of old releases fit it."""

from __future__ import annotations

import asyncio

from perdure import (
    Call,
    Retry,
    attempt,
    continue_as_new,
    machine,
    new_uuid,
    now,
    patched,
    process_id,
    publish,
    random_source,
    receive,
    saga,
    set_attributes,
    set_state,
    step,
    tell,
    workflow,
)
from perdure.errors import StepError


@step(name="golden/double", retry=Retry.NONE)
async def double(number: int) -> int:
    return number * 2


@step(name="golden/falter", retry=Retry(attempts=3, first=0.0, jitter=0.0))
async def falter(until: int) -> int:
    if attempt().number < until:
        raise ConnectionError("not yet")
    return attempt().number


@step(name="golden/refuse", retry=Retry.NONE)
async def refuse(why: str) -> None:
    raise ValueError(why)


@step(name="golden/queued", queue="golden")
async def queued(text: str) -> str:
    return text.upper()


@step(name="golden/nowhere", queue="golden/nowhere")
async def nowhere(text: str) -> str:
    return text


@step(name="golden/once", at_most_once=True)
async def once(text: str) -> str:
    return text


@step(name="golden/give back", retry=Retry.NONE)
async def give_back(what: str, result: str | None) -> None: ...


@step(name="golden/reserve", retry=Retry.NONE, undo=give_back)
async def reserve(what: str) -> str:
    return f"{what} reserved"


@workflow(name="golden/sequence")
async def sequence(number: int, *, times: int = 2) -> int:
    for _ in range(times):
        number = await double(number)
        set_state({"number": number})
    return number


@workflow(name="golden/chance")
async def chance() -> dict[str, object]:
    drawn = random_source().randrange(1000)
    await double(drawn)
    return {
        "drawn": drawn,
        "again": random_source().random(),
        "uuid": str(new_uuid()),
        "at": now().isoformat(),
        "id": process_id(),
    }


@workflow(name="golden/gather")
async def gather(numbers: list[int]) -> list[int]:
    first = await asyncio.gather(*(double(number) for number in numbers))
    return await asyncio.gather(*(double(number) for number in first), double(double(1)))  # type: ignore[arg-type]


@workflow(name="golden/group")
async def group() -> list[int]:
    seen: list[int] = []

    async def one(number: int) -> None:
        await asyncio.sleep(number / 1000)
        seen.append(await double(number))

    async with asyncio.TaskGroup() as tasks:
        for number in (3, 1, 2):
            tasks.create_task(one(number))
    try:
        async with asyncio.timeout(0.002):
            await asyncio.Event().wait()
    except TimeoutError:
        seen.append(await double(50))
    return sorted(seen)


@workflow(name="golden/signals")
async def signals() -> list[object]:
    heard: list[object] = [await receive("name", str)]
    try:
        await receive("never", timeout=0.001)
    except TimeoutError:
        heard.append("nobody")
    heard.append(await receive("number", int))
    tell(process_id(), "myself", {"heard": len(heard)})
    return [*heard, await receive("myself")]


@workflow(name="golden/cancelled")
async def cancelled() -> None:
    try:
        await receive("never")
    finally:
        await double(21)


@workflow(name="golden/retries")
async def retries() -> list[object]:
    tries: list[object] = [await falter(3)]
    try:
        await refuse("because")
    except StepError as error:
        tries.append(error.type)
    return tries


@workflow(name="golden/children")
async def children() -> list[int]:
    one = sequence.child(1, times=1)
    other = sequence.child.options(on_parent_end="abandon")(2)
    return [await one, await other]


@workflow(name="golden/queue")
async def queue() -> str:
    return await queued(await queued("it ") + "waits")


@workflow(name="golden/undone")
async def undone() -> None:
    await reserve("flight")
    async with saga():
        await asyncio.gather(reserve("hotel"), reserve("car"))
    await refuse("no money")


@workflow(name="golden/patches")
async def patches() -> list[bool]:
    first = patched("first")
    await double(1)
    second = patched("second")
    await double(2)
    return [first, second, patched("first")]


@workflow(name="golden/renewed")
async def renewed(left: int, heard: list[str]) -> list[str]:
    await receive("go")
    heard = [*heard, await receive("name", str), str(new_uuid())]
    if left:
        await double(left)
        continue_as_new(left - 1, heard)
    return heard


@workflow(name="golden/published")
async def published(number: int) -> int:
    publish("number", number)
    set_attributes(stage="begun", number=number)
    number = await double(number)
    publish("number", number)
    publish("note", {"at": number})
    set_attributes(stage="doubled", number=None)
    return await double(number)


@workflow(name="golden/paid")
async def paid() -> list[str]:
    return [await once("rent"), await once("gas")]


@workflow(name="golden/again", retry=Retry(attempts=2, first=0.05, jitter=0))
async def again(number: int) -> None:
    raise ValueError(f"{await double(number)} is too much")


@workflow(name="golden/versions", version="2")
async def versions(number: int) -> int:
    return await double(number)


@workflow(name="golden/calls")
async def calls() -> int:
    answered = 0
    while (call := await receive("ask", Call[int])).value:
        answered += await double(1)
        call.answer(ValueError("too much") if call.value > 9 else [call.value, answered])
    return answered


class Till(machine.Machine, name="golden/machine"):
    owner: str
    cents: int = 0
    slips: list[str] = machine.field(default_factory=list)

    @machine.init
    async def opened(self, owner: str) -> None:
        self.owner = owner
        self.cents = await double(50)
        machine.schedule(1e9)

    @machine.call
    async def put(self, cents: int) -> int:
        self.cents += await double(cents)
        return self.cents

    @machine.signal
    def noted(self, slip: str) -> None:
        self.slips.append(slip)

    @machine.call
    async def counted(self) -> int:
        self.slips.append(await queued("counting"))
        self.slips.append(await nowhere("counted"))
        return self.cents

    @machine.timer
    def closed(self) -> None:
        machine.complete(self.cents)
