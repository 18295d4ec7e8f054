"""The shop: its files, its database, and the demonstration in a short form."""

from __future__ import annotations

import filecmp
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.shop import generate
from examples.shop.books import audit, read_orders, read_stock
from examples.shop.database import OutOfStock, Shop
from tests.source import PYTHONPATH, ROOT


@pytest.fixture
async def shop(request: pytest.FixtureRequest, store_url: str) -> AsyncIterator[Shop]:
    """A shop with two flutes, on each database in turn."""
    opened = await Shop.at(store_url)
    await opened.found([("flute", 2)])
    yield opened
    await opened.link.close()


async def shelf(shop: Shop) -> int:
    """How many flutes there are."""
    return int((await shop.link.rows("SELECT on_hand FROM stock"))[0][0])


def test_the_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    generate.write(tmp_path)
    here = ROOT / "examples" / "shop"
    assert filecmp.cmpfiles(here, tmp_path, ["orders.csv", "stock.csv"], shallow=False)[0] == [
        "orders.csv",
        "stock.csv",
    ]
    assert len(read_orders()) == 1000


async def test_the_same_key_takes_goods_off_the_shelf_once(shop: Shop) -> None:
    await shop.reserve("one", "A-1", "flute", 1)
    await shop.reserve("one", "A-1", "flute", 1)
    assert await shelf(shop) == 1
    await shop.release("back", "A-1", "flute", 1)
    await shop.release("back", "A-1", "flute", 1)
    assert await shelf(shop) == 2


async def test_too_much_is_refused_and_changes_nothing(shop: Shop) -> None:
    with pytest.raises(OutOfStock):
        await shop.reserve("one", "A-1", "flute", 3)
    assert await shelf(shop) == 2
    assert await shop.link.rows("SELECT * FROM reservation") == []


async def test_the_audit_finds_an_order_that_was_charged_twice(shop: Shop) -> None:
    [order] = read_orders(1)
    await shop.charge("one", order.id, order.cents)
    await shop.charge("two", order.id, order.cents)
    checks = {check.what: check for check in await audit(shop, [order], read_stock())}
    assert checks["charged exactly once"].wrong == ["A-0001: 2 times"]
    assert checks["shipped exactly once"].wrong == ["A-0001: 0 times"]
    assert "owed" in checks["money taken"].wrong[0]


def test_the_demonstration_ends_with_right_books_after_a_kill_and_a_stop(store_url: str) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PERDURE_URL"},
        "PYTHONPATH": PYTHONPATH,
    }
    if store_url.startswith("postgresql"):
        environment["PERDURE_URL"] = store_url
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "demo", "--orders", "100"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    assert "SIGKILL to worker" in done.stdout and "SIGCONT to worker" in done.stdout
    assert re.search(r"charged exactly once +98 of 98 orders", done.stdout)
    last = " ".join(done.stdout.rpartition("In short: ")[2].split())
    again = re.search(r"effects asked for twice, given once +(\d+)", done.stdout)
    assert again is not None
    assert re.match(r"worker \d was killed with \d+ orders in progress and worker \d was frozen with \d+; ", last)
    assert "none of the 100 orders was lost and nothing happened twice" in last
    assert last.endswith(f"a plain queue would have repeated {again[1]} effects (charges, parcels, letters).")
    # On a busy machine the silence of the killed one may be noticed before its free lock.
    found = re.findall(r"workers found (?:dead|silent) +(\d)", done.stdout)
    assert sum(map(int, found)) >= 2
    assert not re.search(r"orders revived by another worker +0\b", done.stdout)
