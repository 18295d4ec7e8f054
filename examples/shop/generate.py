"""Writes the shop's files anew, the same every time: ``python -m examples.shop.generate``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
ORDERS = 1000
CARD_LIMIT_CENTS = 100_000
DECLINED_EVERY = 40
GOODS = (
    ("anvil", 8_900),
    ("barometer", 4_250),
    ("compass", 1_995),
    ("dynamo", 12_400),
    ("easel", 5_600),
    ("flute", 23_900),
    ("globe", 7_450),
    ("hammock", 3_900),
    ("inkwell", 1_250),
    ("jigsaw", 2_780),
)

Row = tuple[str | int | float, ...]


def orders() -> list[Row]:
    """A thousand orders; every fortieth costs more than a card may be charged."""
    chance = Random(1969)
    rows: list[Row] = []
    for number in range(1, ORDERS + 1):
        good, price = chance.choice(GOODS)
        quantity = chance.choice((1, 1, 1, 2, 3))
        if number % DECLINED_EVERY == 0:
            good, price = "flute", 23_900
            quantity = 5
        packing = round(chance.uniform(0.2, 4.0), 2)
        rows.append((f"A-{number:04}", good, quantity, quantity * price, packing))
    return rows


def stock(ordered: Sequence[Row]) -> list[Row]:
    """Enough of everything, and some to spare."""
    wanted = {good: 0 for good, _ in GOODS}
    for _, good, quantity, *_ in ordered:
        wanted[str(good)] += int(quantity)
    return [(good, price, wanted[good] + 10) for good, price in GOODS]


def write(folder: Path) -> None:
    """Write ``orders.csv`` and ``stock.csv``."""
    ordered = orders()
    _write(folder / "orders.csv", ("order", "good", "quantity", "cents", "packing_seconds"), ordered)
    _write(folder / "stock.csv", ("good", "cents", "on_hand"), stock(ordered))


def _write(path: Path, header: Sequence[str], rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    write(HERE)
