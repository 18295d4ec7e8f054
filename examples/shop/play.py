"""The play: what happens to the shop and its workers, from the first order to the last."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from examples.shop.books import Order, read_stock
from examples.shop.database import Shop
from examples.shop.orders import BANK_SECONDS, order
from examples.shop.screen import Screen
from examples.shop.staff import LEASE_SECONDS, Hand, Staff, freeze_between_writes
from perdure import Engine, Search, Status

WORKERS = 3
WAVES = 20
SMALLEST_WAVE = 10
WAVE_SECONDS = 0.4
KILL_AT, STOP_AT = 0.3, 0.6
LIMIT_SECONDS = 120.0
LOOK_SECONDS = 0.2
LOOKS = 200
CHARGED_SECONDS = BANK_SECONDS * 1.5  # by then the bank has charged the last wave, but has not answered yet
STOP_SECONDS = LEASE_SECONDS + 1.5


class Play:
    """One run of the demonstration: its places, its cast, and what it has seen."""

    def __init__(self, url: str | None, orders: list[Order], folder: Path) -> None:
        self.url = url or f"sqlite:///{folder}/perdure.db"
        self.files = [] if url else [folder / "perdure.db", folder / "shop.db"]
        self.shop_url = url or f"sqlite:///{folder}/shop.db"
        self.orders = orders
        self.staff = Staff(self.url, self.shop_url, folder)
        self.loop = asyncio.get_running_loop()
        self.screen = Screen(len(orders), lambda: self.staff.hands, self.loop.time)
        self.marks = {KILL_AT: asyncio.Event(), STOP_AT: asyncio.Event()}
        self.submitted = 0
        self.ended = 0
        self.killed, self.frozen = "", ""

    async def open(self, stack: AsyncExitStack) -> None:
        """Open the engine as a client, found the shop, hire the staff."""
        self.engine = await stack.enter_async_context(Engine(self.url, workflows=[order], migrate=True))
        self.shop = await Shop.at(self.shop_url)
        stack.push_async_callback(self.shop.link.close)
        await self.shop.found(read_stock())
        # Keys of this run only, so that the demonstration can be given again on the same database.
        self.prefix = f"demo {await self.engine.store.now()} "
        stack.callback(self.staff.end)
        await self.staff.hire(WORKERS)
        self.screen.say(f"{WORKERS} workers are ready, each an OS process: lease {LEASE_SECONDS:.0f} s")

    async def run(self) -> bool:
        """Submit, disturb, wait for the end; False if it did not come in time."""
        watching = asyncio.create_task(self._watch())
        disturbing = asyncio.create_task(self._disturb())
        submitting = asyncio.create_task(self._submit())
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await asyncio.gather(submitting, disturbing, watching)
        except TimeoutError:
            self.screen.say(f"not finished after {LIMIT_SECONDS:.0f} s", "bold red")
            return False
        self.screen.say("every order has ended", "bold")
        return True

    async def _submit(self) -> None:
        size = max(SMALLEST_WAVE, -(-len(self.orders) // WAVES))
        for first in range(0, len(self.orders), size):
            wave = self.orders[first : first + size]
            calls = [(one.id, one.good, one.quantity, one.cents, one.packing_seconds) for one in wave]
            await self.engine.start_many(order, calls, keys=[self.prefix + one.id for one in wave])
            self.submitted += len(wave)
            for share, mark in self.marks.items():
                if self.submitted >= share * len(self.orders):
                    mark.set()
            await asyncio.sleep(WAVE_SECONDS)

    async def _watch(self) -> None:
        while self.ended < len(self.orders):
            counts = (await self.engine.count(Search(key_prefix=self.prefix))).get(order.name, {})
            self.ended = sum(counts.get(status, 0) for status in ("completed", "failed", "cancelled"))
            self.screen.advance(self.submitted, self.ended, counts)
            await asyncio.sleep(LOOK_SECONDS)

    async def _disturb(self) -> None:
        await self.marks[KILL_AT].wait()
        await asyncio.sleep(CHARGED_SECONDS)
        first, held = await self._busiest()
        first.kill()
        self.killed = f"worker {first.number} was killed with {held} orders in progress"
        self.screen.say(f"SIGKILL to {first} with {held} orders in hand", "bold red")
        await self.marks[STOP_AT].wait()
        await asyncio.sleep(CHARGED_SECONDS)
        second, _ = await self._busiest()
        await freeze_between_writes(second, self.files)
        held = (await self._in_hand()).get(second.process.pid, 0)
        self.frozen = f"worker {second.number} was frozen with {held}"
        self.screen.say(f"SIGSTOP to {second} with {held} orders in hand", "bold yellow")
        await asyncio.sleep(STOP_SECONDS)
        second.thaw()
        self.screen.say(f"SIGCONT to {second}, {STOP_SECONDS:.1f} s later: its leases are over", "bold yellow")

    async def _busiest(self) -> tuple[Hand, int]:
        """The worker with the most orders in hand, and how many; looked for a while until somebody has some."""
        held: Counter[int] = Counter()
        for _ in range(LOOKS):
            held = await self._in_hand()
            if held:
                break
        working = [hand for hand in self.staff.hands if hand.state == "working"]
        busiest = max(working, key=lambda hand: held[hand.process.pid])
        return busiest, held[busiest.process.pid]

    async def _in_hand(self) -> Counter[int]:
        """How many orders each worker has in hand, by its pid."""
        search = Search(key_prefix=self.prefix, statuses=(Status.RUNNING,), limit=len(self.orders))
        return Counter(int(v.owner.rpartition(":")[2]) for v in await self.engine.list(search) if v.owner is not None)
