"""Conditions of rows: which of several rows for one event in one state counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure import Status, flow, testing
from perdure.errors import CallRefused, DefinitionError
from tests.flows.transfer import done, gates, note, position, waits
from tests.runtime.conftest import Open

NOT_BOOL: list[Any] = []


class Loan(flow.Flow):
    """A loan: small ones are paid at once, large ones need a person, and nobody gets more than a limit."""

    limit: int = 1000
    cents: int = 0
    late: bool = False

    asking = flow.State(timeout=100)
    checking = flow.State(timeout=100)
    paying = flow.State()
    paid = flow.State(terminal=True, result="cents")
    denied = flow.State(terminal=True)

    @flow.init
    def begun(self, limit: int = 1000) -> None:
        self.limit = limit

    @flow.event
    def priced(self, cents: int, note: str = "") -> None:
        self.cents = cents

    @flow.event
    def hinted(self, cents: int) -> None:
        self.cents = cents

    @flow.event
    def judged(self, good: bool) -> None:
        self.late = good

    @flow.event
    def settled(self) -> None:
        pass

    @flow.condition
    def small(self, cents: int) -> bool:
        return 10 * cents < self.limit

    @flow.condition
    def allowed(self, cents: int) -> bool:
        if NOT_BOOL:
            return NOT_BOOL[0]  # type: ignore[no-any-return]
        return cents <= self.limit

    @flow.condition
    def fine(self, good: bool) -> bool:
        return good

    @flow.condition
    def has_price(self) -> bool:
        return self.cents > 0

    @flow.action
    async def pay(self) -> flow.Happened:
        await note(f"{self.cents} cents")
        return self.settled()

    @flow.action
    async def look(self) -> flow.Happened:
        await waits("look")
        return self.judged(True)

    behaviour = flow.table(
        flow.on(begun).to(asking),
        flow.on(hinted, in_=asking),
        flow.on(priced, in_=asking, when=small).to(paying).do(pay),
        flow.on(priced, in_=asking, when=allowed).to(checking).do(look),
        flow.on(judged, in_=checking, when=fine).to(paying).do(pay),
        flow.on(judged, in_=checking).to(denied),
        flow.on(settled, in_=paying).to(paid),
        flow.any_of(asking.timed_out, checking.timed_out, when=has_price).to(paying).do(pay),
        flow.any_of(asking.timed_out, checking.timed_out).to(denied),
    )


@pytest.mark.parametrize(("cents", "looks"), [(99, 0), (100, 1), (1000, 1)])
async def test_the_first_row_whose_condition_holds_counts(cents: int, looks: int) -> None:
    async with testing.engine() as engine:
        gates["look"].set()
        handle = await engine.start(Loan.begun)
        await handle.signal(Loan.priced, cents)
        assert await handle.result() == cents
        assert done["began look"] == looks


async def test_a_condition_sees_the_fields_as_they_were_before_the_event(opened: Open) -> None:
    engine, _ = await opened(work=True)
    handle = await engine.start(Loan.begun, 5)
    with pytest.raises(CallRefused, match="priced: no condition of a row for it holds in asking"):
        await handle.call(Loan.priced, 6)
    state = (await handle.status()).state
    assert (state["cents"], state["flow"]["state"]) == (0, "asking"), "an event that no row takes changes nothing"
    await handle.signal(Loan.priced, 7, note="a signal is kept")
    with pytest.raises(CallRefused):
        await handle.call(Loan.settled)
    (kept,) = (await position(handle))["unexpected"]
    assert kept["why"] == "no condition of a row for it holds in asking"


async def test_a_condition_chooses_for_a_timeout_and_the_last_row_is_for_the_rest() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Loan.begun)
        await engine.sleep(101)
        assert await handle.result() == "denied"
        handle = await engine.start(Loan.begun)
        await handle.signal(Loan.hinted, 500)
        await engine.sleep(101)
        assert await handle.result() == 500
        assert done["500 cents"] == 1


async def test_a_condition_that_says_neither_true_nor_false_breaks_the_flow_where_it_stood() -> None:
    async with testing.engine() as engine:
        handle = await engine.start(Loan.begun)
        NOT_BOOL.append("yes")
        await handle.signal(Loan.priced, 500)
        await engine.sleep(0.001)
        view = await handle.status()
        assert view.status is Status.BROKEN
        assert "Loan.allowed has returned 'yes'" in str(view.error)
        assert view.attributes["state"] == "asking"
        NOT_BOOL.clear()
        gates["look"].set()
        await handle.retry()
        assert await handle.result() == 500


def test_the_diagram_the_table_and_the_skeleton_show_conditions() -> None:
    assert "    asking --> paying: priced [small] / pay\n" in Loan.diagram()
    assert "    any_state --> denied: asking.timed_out or checking.timed_out\n" in Loan.diagram()
    assert "| checking | judged [fine] | paying | pay |\n| checking | judged | denied | |\n" in Loan.table()
    assert "        # this way only if small\n        await handle.call(Loan.priced, ...)\n" in Loan.scenario()


async def say(self: Any) -> bool:
    return True


def stores(self: Any) -> bool:
    self.cents = 5
    return True


def asks(self: Any) -> bool:
    return bool(note("a step"))


def other_name(self: Any, dollars: int) -> bool:
    return dollars > 5


def other_type(self: Any, cents: str) -> bool:
    return cents == "5"


def anything(self: Any, cents: object) -> bool:
    return bool(cents)


def plain(self: Any) -> bool:
    return True


def named(function: Callable[..., bool], name: str = "fit") -> flow.Condition:
    condition = flow.condition(function)
    condition.name = name
    return condition


class Shop(flow.Flow):
    """The parts of a flow, without a beginning and a table."""

    total: int = 0

    open = flow.State(timeout=60)
    closed = flow.State(terminal=True)

    @flow.event
    def paid(self, cents: int) -> None:
        self.total = cents


def nothing(self: Any) -> None:
    """Begin."""


begun = flow.init(nothing)
begun.name = "begun"  # type: ignore[attr-defined]
FIRST = flow.on(begun).to(Shop.open)
LATE = flow.on(Shop.open.timed_out, in_=Shop.open).to(Shop.closed)


def shop(fit: flow.Condition, *rows: Any) -> type[flow.Flow]:
    """A shop with a condition, and with these rows."""
    parts = {"begun": begun, "fit": fit, "behaviour": flow.table(FIRST, LATE, *rows), "__module__": __name__}
    return type("Kiosk", (Shop,), parts)


def paid(when: flow.Condition | None = None) -> Any:
    """A row for a payment."""
    return flow.on(Shop.paid, in_=Shop.open, when=when).to(Shop.closed)


FIT = named(plain)
IMPOSSIBLE: dict[str, tuple[Callable[[], Any], str]] = {
    "it is async": (lambda: flow.condition(say), "flow.condition marks methods that are a plain `def`"),  # type: ignore[arg-type]
    "it changes a field": (lambda: flow.condition(stores), "changes the field 'cents'"),
    "it asks for a step": (lambda: flow.condition(asks), "names the step 'note'"),
    "it takes what the event does not bring": (
        lambda: shop(one := named(other_name), paid(one)),
        "row 'paid .fit.' in open: its condition takes 'dollars', which does not come with the event 'paid'",
    ),
    "it takes another type": (
        lambda: shop(one := named(other_type), paid(one)),
        "takes 'cents' as another type than the event 'paid' has it",
    ),
    "a timeout brings nothing": (
        lambda: shop(one := named(anything), paid(), flow.on(Shop.open.timed_out, when=one).to(Shop.closed)),
        "takes 'cents', which does not come with a timeout",
    ),
    "two rows can both count": (lambda: shop(FIT, paid(), paid()), "two rows for 'paid' in open. Keep one of them"),
    "a row comes after one for all": (lambda: shop(FIT, paid(), paid(FIT)), "two rows for 'paid' in open"),
    "two rows have one condition": (lambda: shop(FIT, paid(FIT), paid(FIT)), "two rows for 'paid' in open"),
    "no row has it": (lambda: shop(FIT, paid()), "no row has condition fit. Add when=fit to one, or remove it"),
    "it is of another class": (lambda: shop(FIT, paid(Loan.has_price)), "names condition has_price, which is not"),
    "a flow begins under no condition": (
        lambda: shop(FIT, paid(FIT), flow.on(begun, when=FIT).to(Shop.open)),
        "rows for its beginning",
    ),
    "it is none": (lambda: paid(plain), r"when=<function plain .*Name a method of its class marked @flow.condition"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_condition_that_cannot_be_meant_is_refused_when_it_is_defined(case: str) -> None:
    define, says = IMPOSSIBLE[case]
    with pytest.raises(DefinitionError, match=says):
        define()


def test_a_condition_takes_anything_or_what_the_event_brings_and_is_a_plain_method_of_an_object() -> None:
    one = named(anything)
    assert "open --> closed: paid [fit]" in shop(one, paid(one), paid()).diagram()
    loan = object.__new__(Loan)
    loan.limit = 1000
    assert (loan.small(99), loan.small(100)) == (True, False)
