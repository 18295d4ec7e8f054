"""Machines for the tests: an account that is paid into, drawn from, and paid interest."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from perdure import Retry, continue_as_new, machine, step

done: Counter[str] = Counter()
"""How often each effect was made."""
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""Steps wait for these."""
rates: dict[str, int] = {}
"""What the bank pays; none: the bank is closed."""


class Overdrawn(machine.Refusal):
    """More than there is."""


@step
async def book(text: str) -> str:
    """Write something down."""
    done[text] += 1
    return text


@step
async def waits(gate: str) -> str:
    """Wait for a gate."""
    done[f"began {gate}"] += 1
    await gates[gate].wait()
    done[gate] += 1
    return gate


@step(retry=Retry(attempts=1))
async def rate(bank: str) -> int:
    """What the bank pays; fails if the bank is closed."""
    done["asked"] += 1
    return rates[bank]


class Account(machine.Machine):
    """An account."""

    owner: str
    balance: int = 0
    entries: list[str] = machine.field(default_factory=list)
    months: int = 0

    @machine.init
    async def opened(self, owner: str, first: int = 0) -> None:
        self.owner = await book(f"opened for {owner}")
        self.balance = first

    @machine.call
    async def deposit(self, amount: int) -> int:
        """Pay in."""
        self.balance += amount
        self.entries.append(f"+{amount}")
        return self.balance

    @machine.call
    async def withdraw(self, amount: int) -> int:
        """Draw, and write it down elsewhere."""
        self.balance -= amount
        self.entries.append(f"-{amount}")
        await book(f"drawn {amount}")
        if self.balance < 0:
            raise Overdrawn(f"there is less than {amount}")
        return self.balance

    @machine.call
    async def slow(self, gate: str) -> str:
        """Wait for a gate."""
        self.entries.append(await waits(gate))
        return gate

    @machine.call
    async def twice(self, gate: str) -> str:
        """Wait for a moment, then for pairs of tasks, whose order in a set counts, and then for a gate."""
        await asyncio.sleep(0.001)
        order: list[str] = []
        for n in range(6):
            pair = [asyncio.create_task(book(f"{gate} {n}{side}")) for side in "xy"]
            order += [task.result() for task in (await asyncio.wait(pair))[0]]
        await book(",".join(order))
        await waits(gate)
        return ",".join(order)

    @machine.call
    def history(self) -> list[str]:
        """All entries."""
        return self.entries

    @machine.call
    async def earn(self, bank: str) -> int:
        """Interest by the bank's rate."""
        await book("asking")
        self.balance += await rate(bank)
        return self.balance

    @machine.signal
    def note(self, text: str) -> None:
        """An entry."""
        self.entries.append(text)

    @machine.signal
    def save_up(self, seconds: float) -> None:
        """Interest, some time from now."""
        machine.schedule(seconds)

    @machine.signal
    def rest(self) -> None:
        """No interest."""
        machine.suspend()

    @machine.timer
    async def interest(self) -> None:
        """Another month."""
        self.months += 1
        self.balance += 1
        if self.months < 3:
            machine.schedule(60)

    @machine.repair
    async def corrected(self, balance: int) -> None:
        """What a person says that there is."""
        self.balance = balance
        self.entries.append(await book(f"={balance}"))
        if balance < 0:
            raise ValueError(f"{balance} is less than nothing")

    @machine.repair
    def settled(self, balance: int) -> None:
        """The same, and nothing is written down elsewhere."""
        self.balance = balance

    @machine.signal
    async def close(self) -> None:
        """The end."""
        machine.complete(self.balance)


@step
async def unpaid(what: str) -> str:
    """Take back."""
    done[f"unpaid {what}"] += 1
    return what


@step(undo=unpaid)
async def paid(what: str) -> str:
    """Pay."""
    done[f"paid {what}"] += 1
    return what


class Saver(machine.Machine):
    """A machine with bad habits."""

    @machine.init
    def begun(self) -> None:
        pass

    @machine.call
    async def hasty(self) -> str:
        """Leave a task and a step behind."""
        left = asyncio.ensure_future(asyncio.sleep(3600)), asyncio.ensure_future(waits("never"))
        return "done" if not any(one.done() for one in left) else "too late"

    @machine.call
    def twice(self) -> None:
        """Two actions."""
        machine.suspend()
        machine.complete()

    @machine.call
    async def undoing(self) -> None:
        """An undo that would be owed for ever."""
        await paid("rent")

    @machine.call
    def anew(self) -> None:
        """A history of its own making."""
        continue_as_new()


class Vault(machine.Machine):
    """It asks the bank before it has begun."""

    rate: int

    @machine.init
    async def opened(self, bank: str) -> None:
        await book("unlocked")
        self.rate = await rate(bank)

    @machine.call
    def terms(self) -> int:
        """What the bank pays."""
        return self.rate

    @machine.repair
    def corrected(self) -> None:
        """It cannot be repaired before it has fields."""
