"""The shop's books, checked from its own tables against the orders that were submitted."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.shop.database import Shop
from examples.shop.generate import CARD_LIMIT_CENTS

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Order:
    """One line of ``orders.csv``."""

    id: str
    good: str
    quantity: int
    cents: int
    packing_seconds: float

    @property
    def paid(self) -> bool:
        """Whether the bank pays that much."""
        return self.cents <= CARD_LIMIT_CENTS


def read_orders(count: int | None = None) -> list[Order]:
    """The first orders of the CSV file."""
    with (HERE / "orders.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:count]
    return [
        Order(row["order"], row["good"], int(row["quantity"]), int(row["cents"]), float(row["packing_seconds"]))
        for row in rows
    ]


def read_stock() -> list[tuple[str, int]]:
    """What lay on the shelves at first."""
    with (HERE / "stock.csv").open(encoding="utf-8", newline="") as file:
        return [(row["good"], int(row["on_hand"])) for row in csv.DictReader(file)]


@dataclass(frozen=True)
class Check:
    """One line of the audit: what was checked, what was found, and the first things that are wrong."""

    what: str
    found: str
    wrong: list[str]


async def audit(shop: Shop, orders: list[Order], stock: list[tuple[str, int]]) -> list[Check]:
    """Check everything that must be true of the books once every order has ended."""
    paid = {order.id: order for order in orders if order.paid}
    every = {order.id: order for order in orders}
    charges = await shop.link.rows("SELECT order_id, cents FROM charge")
    return [
        _once("charged exactly once", charges, paid),
        _money(charges, paid),
        _once("shipped exactly once", await shop.link.rows("SELECT order_id FROM shipment"), paid),
        _once("written to exactly once", await shop.link.rows("SELECT order_id FROM letter"), every),
        _once("declined and put back exactly once", await shop.link.rows("SELECT order_id FROM release"),
              {id: order for id, order in every.items() if not order.paid}),
        _shelves(dict(await shop.link.rows("SELECT good, on_hand FROM stock")), dict(stock), paid),
    ]  # fmt: skip


async def asked_again(shop: Shop) -> int:
    """How often an effect was asked for that had been asked for before: what the keys have absorbed."""
    every, different = (
        await shop.link.rows(
            "SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT effect, key FROM request) AS one) FROM request"
        )
    )[0]
    return int(every) - int(different)


def _once(what: str, rows: list[tuple[Any, ...]], wanted: dict[str, Order]) -> Check:
    seen = Counter(str(row[0]) for row in rows)
    wrong = [f"{id}: {seen[id]} times" for id in wanted if seen[id] != 1]
    wrong += [f"{id}: {times} times, but never should be" for id, times in seen.items() if id not in wanted]
    right = sum(seen[id] == 1 for id in wanted)
    return Check(what, f"{right:,} of {len(wanted):,} orders", wrong)


def _money(charges: list[tuple[Any, ...]], paid: dict[str, Order]) -> Check:
    taken = sum(int(cents) for _, cents in charges)
    owed = sum(order.cents for order in paid.values())
    wrong = [] if taken == owed else [f"{taken / 100:,.2f} taken, but {owed / 100:,.2f} owed"]
    return Check("money taken", f"{taken / 100:,.2f} of {owed / 100:,.2f}", wrong)


def _shelves(on_hand: dict[str, int], first: dict[str, int], paid: dict[str, Order]) -> Check:
    sold: Counter[str] = Counter()
    for order in paid.values():
        sold[order.good] += order.quantity
    wrong = [
        f"{good}: {on_hand.get(good)} on the shelf, {first[good] - sold[good]} expected"
        for good in first
        if on_hand.get(good) != first[good] - sold[good]
    ]
    return Check("stock right to the piece", f"{len(first) - len(wrong)} of {len(first)} goods", wrong)
