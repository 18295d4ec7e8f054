"""A flow for the tests: a transfer that is reserved, cleared and noted, and the outside systems that it asks."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

from perdure import Handle, Retry, flow, machine, step

sent: list[tuple[str, str]] = []
"""What outside systems were asked, each with the id of the request."""
done: Counter[str] = Counter()
"""How often each effect was made."""
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""Steps wait for these."""
down: set[str] = set()
"""Systems that cannot be reached."""


class Declined(Exception):
    """The clearing house has said no."""


class Unknown(Exception):
    """The bank does not know the account, and will not."""


@step(retry=Retry.NONE, raises=Unknown)
async def ask(system: str, id: str, account: str = "") -> None:
    """Send a question to an outside system."""
    sent.append((system, id))
    if account == "nobody":
        raise Unknown("nobody has no account")
    if system in down:
        raise ConnectionError(f"{system} is down")


@step(retry=Retry.NONE, raises=Declined)
async def settle(account: str) -> str:
    """Clear an amount."""
    done[f"cleared {account}"] += 1
    if account == "poor":
        raise Declined("no cover")
    if "settlement" in down:
        raise OSError("no settlement today")
    return f"C-{account}"


@step
async def note(text: str) -> None:
    """Write something down."""
    done[text] += 1


@step
async def waits(gate: str) -> str:
    """Wait for a gate."""
    done[f"began {gate}"] += 1
    await gates[gate].wait()
    done[gate] += 1
    return gate


class Transfer(flow.Flow):
    """A credit transfer with a timetable of 3, 6 and 10 seconds."""

    account: str = ""
    reservation: str = ""
    receipt: str = ""
    reason: str = ""
    notes: list[str] = machine.field(default_factory=list)

    reserving = flow.State()
    waiting = flow.State(timeout=100)
    clearing = flow.State(phase="ACCEPTED")
    settled = flow.State(terminal=True, phase="ACCEPTED", result="receipt")
    rejected = flow.State(terminal=True, phase="REJECTED", failed=True, result="reason")
    expired = flow.State(terminal=True)

    @flow.init
    def begun(self, account: str) -> None:
        self.account = account

    @flow.event
    def reserved(self, reservation: str) -> None:
        self.reservation = reservation

    @flow.event
    def acknowledged(self) -> None:
        self.notes.append("acknowledged")

    @flow.event
    def refused(self, code: str, reason: str = "") -> None:
        self.reason = f"{code} {reason}".strip()

    @flow.event
    def closed(self, reason: str) -> None:
        self.reason = f"closed: {reason}"

    @flow.event
    def cleared(self, receipt: str) -> None:
        self.receipt = receipt

    @flow.event
    def noted(self, text: str) -> None:
        self.notes.append(text)
        if text == "nonsense":
            raise machine.Refusal("that is nonsense")

    @flow.request(
        timeout=10,
        retry=Retry(attempts=3, first=3, offsets=True, jitter=0),
        answers={"ACCP": reserved, "PDNG": flow.interim(acknowledged), ("RJCT", "AC04"): closed},
        default=refused,
        errors={Unknown: refused},
    )
    async def reserve(self, id: str) -> None:
        await ask("bank", id, self.account)

    @flow.action(errors={Declined: refused})
    async def clear(self) -> flow.Happened:
        return self.cleared(await settle(self.account))

    behaviour = flow.table(
        flow.on(begun).to(reserving).do(reserve),
        flow.on(acknowledged, in_=reserving).to(waiting),
        flow.on(reserved, in_=(reserving, waiting)).to(clearing).do(clear),
        flow.any_of(refused, closed, reserve.timed_out).to(rejected),
        flow.all_of(cleared, noted, in_=clearing).to(settled),
        flow.on(waiting.timed_out, in_=waiting).to(expired),
    )


async def position(handle: Handle[Any]) -> dict[str, Any]:
    """Where a flow stands."""
    state: dict[str, Any] = (await handle.status()).state
    return dict(state["flow"])


async def asked(handle: Handle[Any], name: str) -> str:
    """The id of its open request of that name."""
    (id,) = [one["id"] for one in (await position(handle))["requests"] if one["name"] == name]
    return str(id)
