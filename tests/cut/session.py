"""A session of cuts: engines at work through the proxy, and a witness who looks into the database after each cut."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.commit import Commit, Start
from perdure.kernel.message import Message
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore
from perdure.testing.postgres import Server
from tests.cut import trade
from tests.cut.proxy import Cut, Proxy
from tests.kill.harness import laws_hold

BATCHES = ("start", "start_telling", "send", "commit", "commit_outward", "commit_bringing")
ALONE = ("send_alone", "commit_alone", "commit_outward_alone", "commit_bringing_alone")
CLAIMS = ("claim", "claim_queued", "claim_among")
WRITES = frozenset((*BATCHES, *ALONE, *CLAIMS))
APPLIED, ABSENT, SPLIT = "applied", "absent", "partly"
ENGINES = 4
AT_ONCE = 40
RATE = 0.4


@dataclass
class Tally:
    """What a session did: its cuts, how the unknown outcomes were found to be, and the trades made."""

    cuts: Counter[tuple[str, Cut]] = field(default_factory=Counter)
    resolved: Counter[str] = field(default_factory=Counter)
    trades: int = 0
    effects: int = 0
    repeated: int = 0
    counters: Counter[str] = field(default_factory=Counter)

    @property
    def batches(self) -> int:
        """The cuts around a batch; the others were around a claim, of which nothing is sent again."""
        return sum(n for (door, _), n in self.cuts.items() if door not in CLAIMS)

    def __str__(self) -> str:
        places = ", ".join(f"{sum(n for (_, at), n in self.cuts.items() if at is cut):,} {cut}" for cut in Cut)
        doors: Counter[str] = Counter()
        for (door, _), n in self.cuts.items():
            doors[door] += n
        return (
            f"{self.cuts.total():,} connections cut around a COMMIT: {places}\n"
            f"  by statement: {', '.join(f'{door} {n:,}' for door, n in doors.most_common())}\n"
            f"  unknown batches resolved: {self.resolved[APPLIED]:,} found applied, "
            f"{self.resolved[ABSENT]:,} found absent and sent again\n"
            f"  {self.trades:,} trades started, told and finished, none lost; {self.effects:,} effects, one key each, "
            f"{self.repeated} of them more than once ({self.counters['takeovers']} takeovers)"
        )


class Witness:
    """Looks, on a connection of its own, whether a batch whose outcome nobody was told is there when it comes again."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], tally: Tally) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self._tally = tally

    def watch(self, store: FaultyStore) -> None:
        """See every batch that this store is handed."""
        open: dict[int, Any] = {}

        async def before(name: str, argument: Any) -> None:
            if name in ("start", "send", "commit") and open.setdefault(id(argument), argument) is argument:
                if id(argument) in told:
                    self._tally.resolved[await self._look(argument)] += 1
                told.add(id(argument))

        async def after(name: str, argument: Any) -> None:
            open.pop(id(argument), None)
            told.discard(id(argument))

        told: set[int] = set()
        store.before, store.after = before, after

    async def _look(self, records: Sequence[Start | Message | Commit]) -> str:
        async with self._turn:
            there = [await self._there(record) for record in records]
        return APPLIED if all(there) else SPLIT if any(there) else ABSENT

    async def _there(self, record: Start | Message | Commit) -> bool:
        if isinstance(record, Start):
            sql, given = "SELECT FROM perdure.process WHERE id = $1", [record.process.id]
        elif isinstance(record, Message):
            sql, given = "SELECT FROM perdure.message WHERE id = $1", [record.id]
        else:
            sql = "SELECT FROM perdure.process WHERE id = $1 AND token >= $2 AND version >= $3"
            given = [record.after.id, record.after.token, record.after.version]
        return await self._connection.fetchrow(sql, *given) is not None


async def session(server: Server, wanted: int, seed: int, told: Callable[[str], None] = lambda text: None) -> Tally:
    """Cut ``wanted`` connections around a batch, and some around a claim, while trades are made; all is checked.

    Only batches count: how many claims there are beside them depends on how fast the machine is.
    """
    url = server.fresh_database()
    tally, chance = Tally(), random.Random(seed)
    trade.EFFECTS.clear()

    def chosen(door: str) -> Cut | None:
        if door not in WRITES or tally.batches >= wanted or chance.random() >= RATE:
            return None
        return chance.choice(list(Cut))

    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(server.port, chosen))
        proxy.cuts = tally.cuts
        connection = await asyncpg.connect(url)
        stack.push_async_callback(connection.close)
        await connection.set_type_codec(
            "uuid", schema="pg_catalog", encoder=lambda id: id, decoder=bytes, format="binary"
        )
        witness = Witness(connection, tally)
        engines = []
        for _ in range(ENGINES):
            machine = Computer()
            store = FaultyStore(store_for(proxy.before(url), machine))
            witness.watch(store)
            engine = Engine(url, store=store, machine=machine, work=True, workflows=trade.HOSTED)
            engines.append(await stack.enter_async_context(engine))
        await _trading(engines, tally, wanted, told)
        await laws_hold(engines[0])
        for engine in engines:
            tally.counters.update({name: int(value) for name, value in engine.metrics().items()})
    _judge(tally)
    return tally


async def _trading(engines: Sequence[Engine], tally: Tally, wanted: int, told: Callable[[str], None]) -> None:
    """Make trades, each by several engines, until there have been enough cuts."""

    async def one(place: int) -> None:
        while tally.batches < wanted:
            tally.trades += 1
            n = tally.trades
            starter, teller, asker = (engines[(place + n + turn) % len(engines)] for turn in range(3))
            handle = await starter.start(trade.trade.options(key=f"trade/{n}"), n)
            await teller.process(handle.id).signal("paid", n, key="once")
            assert await asker.process(handle.id).result() == 5 * n
            if n % 500 == 0:
                told(f"{tally.batches:,} of {wanted:,} cuts, {n:,} trades")

    async with asyncio.TaskGroup() as group:
        for place in range(AT_ONCE):
            group.create_task(one(place))


def _judge(tally: Tally) -> None:
    """Every effect of every trade under one key; more than once only where a row was taken over."""
    keys = Counter(what for what, _ in trade.EFFECTS)
    assert len(keys) == trade.EFFECTS_EACH * tally.trades, "an effect is missing"
    assert set(keys.values()) == {1}, "an effect happened under two keys"
    tally.effects = len(keys)
    tally.repeated = sum(times > 1 for times in trade.EFFECTS.values())
    assert tally.repeated <= trade.EFFECTS_EACH * tally.counters["takeovers"]
