"""Flows made of others: a part that several flows include, and a flow that another one calls."""

from __future__ import annotations

from typing import Any

from perdure import Handle, ProcessFailed, Retry, Search, Status, attempt, flow, machine, step, tell, testing
from tests.flows.transfer import ask, asked, position, sent
from tests.runtime.conftest import LIMIT, Open, until


class Checked(flow.Flow):
    """A part: somebody is checked by an office, which answers."""

    person: str = ""

    checking = flow.State()

    @flow.event
    def fine(self) -> None:
        pass

    @flow.event
    def suspicious(self, reason: str) -> None:
        self.person += f" ({reason})"

    @flow.request(timeout=60, answers={"OK": fine}, default=suspicious)
    async def check(self, id: str) -> None:
        await ask("office", id)

    checks = flow.table(
        flow.on(check.timed_out, in_=checking).to(checking).do(check),
    )


class Account(Checked):
    """A flow that includes the part."""

    opened = flow.State(terminal=True, result="person")
    denied = flow.State(terminal=True, failed=True, result="person")

    @flow.init
    def wanted(self, person: str) -> None:
        self.person = person

    behaviour = flow.table(
        flow.on(wanted).to(Checked.checking).do(Checked.check),
        flow.on(Checked.fine, in_=Checked.checking).to(opened),
        flow.on(Checked.suspicious, in_=Checked.checking).to(denied),
    )


class Visa(Checked):
    """Another one, which goes on after the part, and calls an account as a flow of its own."""

    account: str = ""
    gate: str = ""

    banking = flow.State()
    granted = flow.State(terminal=True, result="account")
    refused = flow.State(terminal=True, result="account")

    @flow.init
    def applied(self, person: str) -> None:
        self.person = person

    @flow.event
    def banked(self, account: str) -> None:
        self.account = account

    @flow.event
    def unbanked(self, reason: str) -> None:
        self.account = reason

    @flow.action(timeout=100, errors={ProcessFailed: unbanked})
    async def call_account(self) -> flow.Happened:
        return self.banked(await Account.wanted.child(self.person))

    behaviour = flow.table(
        flow.on(applied).to(Checked.checking).do(Checked.check),
        flow.on(Checked.fine, in_=Checked.checking).to(banking).do(call_account),
        flow.on(Checked.suspicious, in_=Checked.checking).to(refused),
        flow.on(banked, in_=banking).to(granted),
        flow.any_of(unbanked, call_account.timed_out, in_=banking).to(refused),
    )


async def test_two_flows_include_one_part_and_go_on_in_their_own_way() -> None:
    async with testing.engine() as engine:
        account = await engine.start(Account.wanted, "Ann")
        await engine.sleep(61)
        assert len(sent) == 2
        assert await account.call(Account.answer, await asked(account, "check"), "OK") == "opened"
        assert await account.result() == "Ann"
        assert "checking --> checking: check.timed_out / check" in Visa.diagram()


async def begun(opened: Open) -> tuple[Handle[Any], Handle[Any]]:
    """A visa that waits for the account that it has called, and that account."""
    engine, _ = await opened(work=True)
    visa = await engine.start(Visa.applied, "Ann")
    await until(lambda: len(sent) == 1)
    await visa.signal(Visa.answer, sent[0][1], "OK")
    await until(lambda: len(sent) == 2)
    return visa, engine.process(flow.process_of(sent[1][1]))


async def test_a_flow_that_is_called_ends_with_an_event_of_its_caller(opened: Open) -> None:
    visa, account = await begun(opened)
    assert (await visa.status()).attributes["state"] == "banking"
    await account.signal(Account.answer, sent[1][1], "OK")
    assert await visa.result(LIMIT) == "Ann"


async def test_a_called_flow_that_fails_is_an_expected_error_of_its_caller(opened: Open) -> None:
    visa, account = await begun(opened)
    await account.signal(Account.answer, sent[1][1], "NO", "a debt")
    assert "denied: Ann (a debt)" in await visa.result(LIMIT)


async def test_a_called_flow_that_takes_too_long_is_cancelled_and_the_timeout_is_named_after_the_call() -> None:
    async with testing.engine() as engine:
        visa = await engine.start(Visa.applied, "Ann")
        await engine.sleep(0.001)
        await visa.signal(Visa.answer, sent[0][1], "OK")
        assert await visa.result() == ""
        account = engine.process(flow.process_of(sent[1][1]))
        assert (await account.status()).status is Status.CANCELLED
        assert (await position(visa))["state"] == "refused"


class Delivery(flow.Flow):
    """A flow that another one asks for, and that tells it how it has ended."""

    asked_by: str = ""
    code: str = ""

    underway = flow.State(timeout=3600)
    over = flow.State(terminal=True, result="code")

    @flow.init
    def ordered(self, asked_by: str) -> None:
        self.asked_by = asked_by

    @flow.event
    def brought(self) -> None:
        self.code = "BROUGHT"

    @flow.action
    async def report(self) -> None:
        tell(flow.process_of(self.asked_by), "answer", [self.asked_by, self.code or "LOST"])

    behaviour = flow.table(
        flow.on(ordered).to(underway),
        flow.any_of(brought, underway.timed_out, in_=underway).to(over).do(report),
    )


@step(retry=Retry.NONE)
async def begin_delivery(id: str) -> str:
    """Begin the other flow, whose key is the question: asked again, it is the same one."""
    sent.append(("delivery", id))
    return (await attempt().engine.start(Delivery.ordered.options(key=id), id)).id


class Purchase(flow.Flow):
    """It goes on hearing what comes while the flow that it asked for goes on."""

    wishes: list[str] = machine.field(default_factory=list)

    waiting = flow.State()
    happy = flow.State(terminal=True, result="wishes")
    sorry = flow.State(terminal=True, result="wishes")

    @flow.init
    def made(self) -> None:
        pass

    @flow.event
    def wished(self, wish: str) -> None:
        self.wishes.append(wish)

    @flow.event
    def here(self) -> None:
        pass

    @flow.event
    def lost(self) -> None:
        pass

    @flow.request(timeout=7200, retry=Retry(attempts=2, first=60, jitter=0), answers={"BROUGHT": here}, default=lost)
    async def delivery(self, id: str) -> None:
        await begin_delivery(id)

    behaviour = flow.table(
        flow.on(made).to(waiting).do(delivery),
        flow.on(wished, in_=waiting),
        flow.on(here, in_=waiting).to(happy),
        flow.any_of(lost, delivery.timed_out, in_=waiting).to(sorry),
    )


async def test_a_flow_that_is_asked_for_tells_its_end_as_an_answer_and_its_asker_hears_others_meanwhile(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True)
    purchase = await engine.start(Purchase.made)
    await until(lambda: sent)
    assert await purchase.call(Purchase.wished, "a card") == "waiting"
    delivery = await engine.handle(Delivery.ordered, sent[0][1])
    await delivery.signal(Delivery.brought)
    assert await purchase.result(LIMIT) == ["a card"]
    assert await delivery.result(LIMIT) == "BROUGHT"


async def test_a_flow_that_is_asked_for_again_is_the_same_one() -> None:
    async with testing.engine() as engine:
        purchase = await engine.start(Purchase.made)
        assert await purchase.result() == []
        assert (await position(purchase))["state"] == "sorry"
        assert len(sent) == 2
        assert len(await engine.list(Search(kind="Delivery"))) == 1
