"""A credit transfer as a flow: a bank is asked, again after 3 and 6 seconds, given up after 10; its answers come later.

Run it with ``python -m examples.transfer``. Its clock skips, so that the seconds pass in a moment.
"""

from __future__ import annotations

import asyncio

from perdure import Handle, ProcessFailed, Retry, flow, step, testing

asked: list[str] = []
"""What the bank was asked, by the id of the request: a real bank would be called by HTTP, or through a queue."""


@step(retry=Retry.NONE)
async def ask_the_bank(id: str, account: str, cents: int) -> None:
    """Send the question; the flow sends it again if no answer comes."""
    asked.append(id)


@step
async def book(account: str, cents: int, reservation: str) -> str:
    """Write the transfer into our own books."""
    return f"{cents} cents of {account} by {reservation}"


class Transfer(flow.Flow):
    """A transfer: the money is reserved at the bank, then booked."""

    account: str = ""
    cents: int = 0
    reservation: str = ""
    receipt: str = ""
    reason: str = ""

    reserving = flow.State(phase="PENDING")
    pending = flow.State(phase="PENDING")
    booking = flow.State(phase="ACCEPTED")
    settled = flow.State(terminal=True, phase="ACCEPTED", result="receipt")
    rejected = flow.State(terminal=True, phase="REJECTED", failed=True, result="reason")

    @flow.init
    def requested(self, account: str, cents: int) -> None:
        """A customer wants to pay."""
        self.account, self.cents = account, cents

    @flow.event
    def reserved(self, reservation: str) -> None:
        """The bank keeps the money for us."""
        self.reservation = reservation

    @flow.event
    def acknowledged(self) -> None:
        """The bank has the question, and will answer."""

    @flow.event
    def refused(self, code: str, reason: str = "") -> None:
        """The bank does not keep it."""
        self.reason = f"{code} {reason}".strip()

    @flow.event
    def booked(self, receipt: str) -> None:
        """It is in our books."""
        self.receipt = receipt

    @flow.request(
        timeout=10,
        retry=Retry(attempts=3, first=3, offsets=True, jitter=0),
        answers={"ACCP": reserved, "PDNG": flow.interim(acknowledged)},
        default=refused,
    )
    async def reserve(self, id: str) -> None:
        """Ask the bank to keep the money."""
        await ask_the_bank(id, self.account, self.cents)

    @flow.action
    async def write(self) -> flow.Happened:
        """Write it into our books."""
        return self.booked(await book(self.account, self.cents, self.reservation))

    behaviour = flow.table(
        flow.on(requested).to(reserving).do(reserve),
        flow.on(acknowledged, in_=reserving).to(pending),
        flow.on(reserved, in_=(reserving, pending)).to(booking).do(write),
        flow.on(booked, in_=booking).to(settled),
        flow.any_of(refused, reserve.timed_out).to(rejected),
    )


async def ended(handle: Handle[object]) -> str:
    """How a transfer has ended."""
    try:
        return f"settled: {await handle.result()}"
    except ProcessFailed as failed:
        return f"{failed.type}: {failed.detail}"


async def main() -> None:
    """One transfer whose bank is silent, one that is accepted late, one that is refused, one that a person aborts."""
    async with testing.engine() as engine:
        silent = await engine.start(Transfer.requested, "Ann", 500)
        begun, times = engine.now(), []
        for _ in range(12):
            await engine.sleep(0.5)
            times += [int((engine.now() - begun).total_seconds())] * (len(asked) - len(times))
            await engine.sleep(0.5)
        print("the bank was asked after so many seconds:", times)
        print("and it was always the same question:", len(set(asked)) == 1)
        print("Ann:", await ended(silent))

        late = await engine.start(Transfer.requested.options(key="t-2"), "Ben", 700)
        await engine.sleep(1)
        print("Ben, after an interim answer:", await late.call(Transfer.answer, asked[-1], "PDNG"))
        await engine.sleep(4)
        print("the bank was asked again:", asked[-1] == asked[-2])
        print("Ben, after the last answer:", await late.call(Transfer.answer, asked[-1], "ACCP", value="R-17"))
        print("Ben:", await ended(late))

        refused = await engine.start(Transfer.requested, "Cem", 900)
        await engine.sleep(1)
        bank = engine.process(flow.process_of(asked[-1]))  # a bank knows the id of the question, and nothing else
        await bank.signal(Transfer.answer, asked[-1], "RJCT", "AC04")
        print("Cem:", await ended(refused))

        doubtful = await engine.start(Transfer.requested, "Dan", 100_000)
        await engine.sleep(1)
        await doubtful.signal(Transfer.abort, "it looks like a fraud")
        print("Dan:", await ended(doubtful))
        print("its state and phase:", (await doubtful.status()).attributes)


if __name__ == "__main__":
    asyncio.run(main())
