"""A bank whose accounts are machines: a hundred transfers between them while the bank's workers are killed.

Run it with ``python -m examples.bank``. It needs nothing but a folder, or the URL of a PostgreSQL database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from examples.workers import Workers
from perdure import Engine, Permanent, attempt, machine, step, workflow
from perdure.errors import CallRefused, ProcessFailed

OWNERS = ["Ann", "Ben", "Cid", "Dot"]
CENTS = 10_000
TRANSFERS = 100
KILLS = 4


class Overdrawn(machine.Refusal):
    """More than there is in an account."""


class Account(machine.Machine):
    """An account: what is in it, and of how many entries that is the sum."""

    owner: str
    cents: int = 0
    entries: int = 0

    @machine.init
    def opened(self, owner: str, cents: int) -> None:
        """Begin with what its owner brings."""
        self.owner, self.cents = owner, cents

    @machine.call
    def deposit(self, cents: int) -> int:
        """Pay in; the answer is what there is then."""
        self.cents += cents
        self.entries += 1
        return self.cents

    @machine.call
    def withdraw(self, cents: int) -> int:
        """Draw; the answer is what is left."""
        if cents > self.cents:
            raise Overdrawn(f"{self.owner} has less than {cents}")
        self.cents -= cents
        self.entries += 1
        return self.cents


class Refused(Permanent):
    """The bank says no, and would say so again."""


@step
async def draw(owner: str, cents: int) -> int:
    """Ask an account for money. All attempts of a step have one key: however many there are, it is drawn once."""
    account = await attempt().engine.handle("Account", owner)
    try:
        return await account.call(Account.withdraw.options(key=attempt().idempotency_key), cents)
    except CallRefused as refused:
        raise Refused(refused.detail) from None


@step
async def pay_in(owner: str, cents: int) -> int:
    """Put money into an account, once."""
    account = await attempt().engine.handle("Account", owner)
    return await account.call(Account.deposit.options(key=attempt().idempotency_key), cents)


@workflow
async def transfer(giver: str, taker: str, cents: int) -> str:
    """Move money from one account to another."""
    await draw(giver, cents)
    await pay_in(taker, cents)
    return f"{giver} has paid {taker} {cents}"


async def main(url: str) -> None:
    """Open accounts, move money while workers are killed, and look whether the books are right."""
    workers = Workers("examples.bank", url)
    async with Engine(url, migrate=True) as engine:
        try:
            for _ in range(2):
                await workers.add()
            accounts = [await engine.start(Account.opened.options(key=owner), owner, CENTS) for owner in OWNERS]
            transfers = []
            for n in range(TRANSFERS):
                giver, taker = OWNERS[n % 4], OWNERS[(n + 1 + n % 3) % 4]
                transfers.append(await engine.start(transfer.options(key=f"t-{n}"), giver, taker, 10 + n))
            too_much = await engine.start(transfer.options(key="too much"), "Ann", "Ben", 100 * CENTS)
            for n, done in enumerate(asyncio.as_completed([one.result(timeout=120) for one in transfers]), 1):
                await done
                if n % (TRANSFERS // (KILLS + 1)) == 0 and n < TRANSFERS:
                    await workers.kill_one()
            print(f"{TRANSFERS} transfers, while {KILLS} workers were killed")
            try:
                await too_much.result(timeout=120)
            except ProcessFailed as failed:
                print(f"and one was refused: {failed.detail}")
            books = [dict((await account.status()).state) for account in accounts]
            print(f"in all accounts together: {sum(book['cents'] for book in books)} of {len(OWNERS) * CENTS} cents")
            print(f"entries: {sum(book['entries'] for book in books)} of {2 * TRANSFERS}")
        finally:
            await workers.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bank.db"))
