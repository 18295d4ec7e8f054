"""A machine whose step runs at most once is broken if its worker is lost in the middle: a person decides."""

from __future__ import annotations

import pytest

from perdure import machine, step
from perdure.errors import ProcessBroken
from tests.machines.account import done, gates
from tests.runtime.conftest import LIMIT, Open, lose, until


@step(at_most_once=True)
async def punch(card: str) -> str:
    done[card] += 1
    await gates[card].wait()
    return f"{card} punched"


class Clock(machine.Machine):
    punched: str = ""

    @machine.init
    def mounted(self) -> None:
        pass

    @machine.signal
    async def arrive(self, card: str) -> None:
        self.punched = await punch(card)
        machine.complete(self.punched)


@pytest.mark.parametrize("again", [False, True])
async def test_a_step_with_an_unknown_end_breaks_its_machine_and_a_person_decides(opened: Open, again: bool) -> None:
    first, store = await opened(work=True)
    clock = await first.start(Clock.mounted)
    await clock.signal(Clock.arrive, "Ann")
    await until(lambda: done["Ann"])
    await lose(first, store)
    gates["Ann"].set()
    second, _ = await opened(work=True)
    handle = second.process(clock.id)
    with pytest.raises(ProcessBroken, match="not known whether it was done"):
        await handle.result(LIMIT)
    assert done["Ann"] == 1
    if again:
        await handle.retry(who="anna")
    else:
        await handle.set_result("punch", "by hand", who="anna")
    assert await handle.result(LIMIT) == ("Ann punched" if again else "by hand")
    assert done["Ann"] == 1 + again
