"""A flow is checked when its class is made, and each refusal names the place and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure import Retry, flow, machine, testing
from perdure.authoring.flow.row import Row
from perdure.errors import DefinitionError
from tests.flows.transfer import Transfer


class Sale(flow.Flow):
    """The parts of a flow, without a beginning and a table."""

    total: int = 0

    open = flow.State(timeout=60)
    closed = flow.State(terminal=True)

    @flow.event
    def paid(self, cents: int) -> None:
        self.total = cents

    @flow.action
    async def ship(self) -> None:
        pass

    @flow.request(timeout=10, answers={"PAID": paid})
    async def bill(self, id: str) -> None:
        pass


def nothing(self: Any) -> None:
    """Begin."""


async def billed(self: Any, id: str) -> None:
    """Ask."""


async def repeat_(self: Any) -> flow.Happened:
    """Let happen what has happened; its name elsewhere is another one."""
    happened: flow.Happened = self.again() if self.total.closed != 7 else self.total.open
    return happened


async def punctual_(self: Any) -> None:
    """Look at the clock of the machine."""
    datetime.now(UTC)


async def waits(self: Any) -> None:
    """Act."""


begun = flow.init(nothing)
begun.name = "begun"  # type: ignore[attr-defined]
FIRST = flow.on(begun).to(Sale.open).do(Sale.bill)
PAID = flow.on(Sale.paid, in_=Sale.open).to(Sale.closed).do(Sale.ship)
LATE = flow.on(Sale.open.timed_out, in_=Sale.open).to(Sale.closed)
UNBILLED = flow.on(Sale.bill.timed_out).to(Sale.closed)
RIGHT = (FIRST, PAID, LATE, UNBILLED)
again = flow.event(nothing)
again.name = "again"
NO_TEXT: Any = 5
NO_ERROR: Any = "Declined"
repeat = flow.action(repeat_)
repeat.name = "repeat"
punctual = flow.action(punctual_)
punctual.name = "punctual"
other = flow.State()
other.name = "other"
careful = flow.action(errors={OSError: Sale.paid})(waits)
careful.name = "careful"
asking = flow.request(timeout=5, answers={"PAID": Sale.paid}, errors={OSError: Sale.paid})(billed)
asking.name = "asking"


def sale(*rows: Row, **parts: Any) -> type[flow.Flow]:
    """A sale with this table, and with more parts."""
    return type("Shop", (Sale,), {"begun": begun, **parts, "behaviour": flow.table(*rows), "__module__": __name__})


def test_a_flow_that_can_be_meant_is_one() -> None:
    assert "open --> closed: paid / ship" in sale(*RIGHT).diagram()


IMPOSSIBLE: dict[str, tuple[Callable[[], Any], str]] = {
    "a state that no row leads to": (lambda: sale(*RIGHT, other=other), r"no row leads to state other\. Add one with"),
    "a state with no way out": (
        lambda: sale(FIRST, PAID, LATE, flow.on(Sale.bill.timed_out).to(other), other=other),
        r"no row leads out of state other\. Add one, or make it the end",
    ),
    "an event that no row expects": (
        lambda: sale(FIRST, LATE, flow.on(Sale.bill.timed_out).to(Sale.closed).do(Sale.ship)),
        "no row expects the event 'paid'",
    ),
    "an action that no row does": (
        lambda: sale(FIRST, flow.on(Sale.paid, in_=Sale.open).to(Sale.closed), LATE, UNBILLED),
        r"no row does action ship",
    ),
    "a timeout of a state that no row expects": (
        lambda: sale(FIRST, PAID, UNBILLED),
        r"state open has a timeout that no row expects\. Add flow\.on\(open\.timed_out",
    ),
    "a timeout of a request that no row expects": (
        lambda: sale(FIRST, PAID, LATE),
        r"may lead to 'bill\.timed_out', which no row expects|no row expects bill\.timed_out",
    ),
    "a timeout of what has none": (
        lambda: sale(*RIGHT, flow.on(Sale.ship.timed_out).to(Sale.closed)),
        "action ship has no timeout. Give it",
    ),
    "two rows for one event in one state": (
        lambda: sale(*RIGHT, flow.on(Sale.paid, in_=Sale.open)),
        "two rows for 'paid' in open. Keep one",
    ),
    "two rows for one event in any state": (
        lambda: sale(*RIGHT, flow.on(Sale.bill.timed_out).to(Sale.closed)),
        r"two rows for 'bill.timed_out' in any state",
    ),
    "a row in a terminal state": (
        lambda: sale(*RIGHT, flow.on(Sale.paid, in_=Sale.closed).to(Sale.open)),
        "begins in a terminal state",
    ),
    "a request in a terminal state": (
        lambda: sale(FIRST, PAID, LATE, flow.on(Sale.bill.timed_out).to(Sale.closed).do(Sale.bill)),
        "no answer is heard",
    ),
    "a state of another flow": (
        lambda: sale(*RIGHT, flow.on(Transfer.noted, in_=Sale.open)),
        "names <event .*which is not declared",
    ),
    "no beginning in the table": (lambda: sale(*RIGHT[1:]), r"0 rows for its beginning\. Write one: flow\.on\(begun\)"),
    "two beginnings in the table": (lambda: sale(*RIGHT, FIRST), "2 rows for its beginning"),
    "a beginning that leads nowhere": (
        lambda: sale(flow.on(begun), *RIGHT[1:]),
        r"a flow begins in one state.*Write flow\.on\(begun\)\.to\(state\)",
    ),
    "two methods to begin with": (lambda: sale(*RIGHT, start=flow.init(nothing)), "begun and start marked @flow.init"),
    "all of one event": (
        lambda: sale(FIRST, LATE, UNBILLED, flow.all_of(Sale.paid, in_=Sale.open).to(Sale.closed)),
        "all_of.. of one event",
    ),
    "a state called like what every flow has": (
        lambda: sale(*RIGHT, abort=flow.State()),
        "'abort' is what every flow has",
    ),
    "a table called like what every flow has": (
        lambda: sale(*RIGHT, table=flow.table()),
        "'table' is what every flow has",
    ),
    "a field called like what every flow has": (
        lambda: sale(*RIGHT, __annotations__={"answer": str}),
        "'answer' is what every flow has. Choose another name",
    ),
    "an action that reads the clock": (
        lambda: sale(*RIGHT[1:], FIRST.do(punctual), punctual=punctual),
        r"datetime\.now",
    ),
    "a state that is called aborted": (
        lambda: sale(*RIGHT, aborted=flow.State(terminal=True)),
        "is what abort.. leads to",
    ),
    "a result that is no field": (
        lambda: sale(FIRST, PAID, LATE, UNBILLED, done=flow.State(terminal=True, result="sum")),
        "there is no such field",
    ),
    "different options of a request in one state": (
        lambda: sale(
            FIRST,
            PAID,
            LATE,
            UNBILLED,
            flow.on(again, in_=Sale.open).to(Sale.open).do(Sale.bill.options(timeout=5)),
            again=again,
        ),
        "'bill' has different options in open. Give it the same",
    ),
    "an answer that no row expects": (
        lambda: sale(
            flow.on(begun).to(Sale.open),
            flow.on(again, in_=Sale.open).to(other).do(Sale.bill),
            PAID,
            LATE,
            UNBILLED,
            other=other,
            again=again,
        ),
        r"request bill may lead to 'paid', which no row expects in other or after it\. Add flow\.on\(paid, in_=other\)",
    ),
    "an event that is returned and that no row expects": (
        lambda: sale(
            flow.on(begun).to(other),
            flow.on(again, in_=other).to(Sale.open).do(Sale.bill, repeat),
            PAID,
            LATE,
            UNBILLED,
            other=other,
            again=again,
            repeat=repeat,
        ),
        r"action repeat may lead to 'again', which no row expects in open or after it\. Add flow\.on\(again",
    ),
    "an error that leads to an event with a value": (
        lambda: sale(*RIGHT, careful=careful),
        r"action careful has errors=\{OSError: paid\}, and 'paid' takes 'cents', which no error brings\. Call it",
    ),
    "an error of a request that leads to an event with a value": (
        lambda: sale(*RIGHT, asking=asking),
        r"request asking has errors=\{OSError: paid\}, and 'paid' takes 'cents', which no error brings",
    ),
    "a beginning of a machine": (
        lambda: type("Shop", (Sale,), {"begun": machine.init(nothing)}),
        r"marked @machine\.init\. Mark it @flow\.init",
    ),
    "a name without a beginning": (
        lambda: type("Part", (flow.Flow,), {}, name="part"),
        "no method marked @flow.init, so it has no name",
    ),
    "a terminal state with a timeout": (lambda: flow.State(terminal=True, timeout=5), "terminal state has a timeout"),
    "a result before the end": (lambda: flow.State(result="total"), "failed or result and is not terminal"),
    "a phase that is no text": (lambda: flow.State(phase=5), "phase=5. Give a text"),  # type: ignore[arg-type]
    "a stretch between what are no states": (
        lambda: flow.Stretch(Sale.open, "closed", timeout=5),
        "'closed', which is no state",  # type: ignore[arg-type]
    ),
    "a row without an event": (lambda: flow.any_of(in_=Sale.open), "has no event"),
    "a row whose event is none": (lambda: flow.on("paid"), "'paid', which is no event"),  # type: ignore[arg-type]
    "a row that leads to no state": (lambda: PAID.to("closed"), "is no state"),  # type: ignore[arg-type]
    "a row that does no action": (lambda: PAID.do(nothing), "Name methods marked @flow.action"),  # type: ignore[arg-type]
    "a row that stops an action": (lambda: PAID.stop(Sale.ship), "@flow.request"),  # type: ignore[arg-type]
    "a table of what are no rows": (lambda: flow.table(Sale.open), "Begin each row with"),  # type: ignore[arg-type]
    "an event that awaits": (lambda: flow.event(billed), "an event only changes fields"),
    "an event that is no function": (lambda: flow.event("paid"), "marks methods"),  # type: ignore[arg-type]
    "an action that is no coroutine": (lambda: flow.action(nothing), "that are `async def`"),  # type: ignore[arg-type]
    "an action that takes more": (lambda: flow.action(billed), "takes self alone"),  # type: ignore[arg-type]
    "a request without an answer": (lambda: flow.request(timeout=5)(billed), "knows no answer"),
    "a request without a timeout": (
        lambda: flow.request(timeout=None, default=Sale.paid)(billed),
        "a lost answer would be awaited for ever",  # type: ignore[arg-type]
    ),
    "an answer that leads to no event": (
        lambda: flow.request(timeout=5, default=nothing)(billed),
        "Name a method marked @flow.event",  # type: ignore[arg-type]
    ),
    "a code that is no text": (
        lambda: flow.request(timeout=5, answers={NO_TEXT: Sale.paid})(billed),
        "Give its code as a text",
    ),
    "an answer to an event of two values": (
        lambda: flow.request(timeout=5, default=flow.event(of_two))(billed),
        "which takes a, b",
    ),
    "an interim answer without an event": (lambda: flow.interim(nothing), "names no event"),  # type: ignore[arg-type]
    "errors that are none": (
        lambda: flow.action(errors={NO_ERROR: Sale.paid})(waits),
        "Give error classes with events",
    ),
    "a retry that is none": (
        lambda: flow.request(timeout=5, default=Sale.paid, retry=3)(billed),
        r"Write retry=Retry\(",  # type: ignore[arg-type]
    ),
    "a timeout that is no time": (lambda: flow.State(timeout=-1), "more than 0 and finite"),
}


def of_two(self: Any, a: int, b: int) -> None:
    """Two values."""


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_what_cannot_be_meant_is_refused_with_what_to_do(wrong: str) -> None:
    made, text = IMPOSSIBLE[wrong]
    with pytest.raises(DefinitionError, match=text):
        made()


def hesitate(self: Any, code: str, cents: int | None, times: int = 3) -> None:
    """Take what an error brings, and what it does not."""
    self.total = times if (code, cents) == ("OSError", None) else -1


async def stumble(self: Any) -> None:
    """Fail."""
    raise OSError("no ship")


async def test_an_error_may_lead_to_an_event_that_can_do_without_a_value() -> None:
    hesitated = flow.event(hesitate)
    hesitated.name = "hesitated"
    sailing = flow.action(errors={OSError: hesitated})(stumble)
    sailing.name = "sailing"
    rows = (FIRST.do(sailing), *RIGHT[1:], flow.on(hesitated, in_=Sale.open))
    shop = sale(*rows, hesitated=hesitated, sailing=sailing)
    async with testing.engine() as engine:
        handle = await engine.start(shop.begun)  # type: ignore[attr-defined]
        await engine.sleep(1)
        assert (await handle.status()).state["total"] == 3


async def test_an_event_goes_by_the_name_that_it_has_in_its_class() -> None:
    shop = sale(*RIGHT, flow.on(again, in_=Sale.open), again=again)
    async with testing.engine() as engine:
        handle = await engine.start(shop.begun)  # type: ignore[attr-defined]
        assert await handle.call("again", []) == "open"


def test_the_settings_of_a_request_are_checked_where_they_are_given() -> None:
    with pytest.raises(DefinitionError, match="timeout=0"):
        Sale.bill.options(timeout=0)
    assert Sale.bill.options(retry=Retry(attempts=2)).timeout == 10


@pytest.mark.parametrize(
    "setting",
    [
        {"then": ["alert"]},
        {"waits": {OSError: 5}},
        {"on": OSError},
        {"never": OSError},
        {"budget": 5},
        {"timeout_factor": 2},
        {"timeout_cap": 60},
    ],
    ids=lambda setting: "".join(setting),
)
def test_what_the_retry_of_a_request_cannot_say_is_refused_where_it_is_given(setting: dict[str, Any]) -> None:
    [name] = setting
    text = rf"Retry\({name}=\.\.\.\).*may have attempts, first, factor, cap, jitter, total, backoffs, offsets"
    with pytest.raises(DefinitionError, match=rf"billed has {text}"):
        flow.request(timeout=5, default=Sale.paid, retry=Retry(attempts=2, **setting))(billed)
    with pytest.raises(DefinitionError, match=text):
        Sale.bill.options(retry=Retry(attempts=2, **setting))


def test_the_retry_of_a_request_may_say_all_that_a_policy_may_set_for_it() -> None:
    waits = Retry(attempts=4, first=3, factor=3, cap=90, jitter=0, total=900, offsets=True)
    assert Sale.bill.options(retry=waits).retry == waits
    assert Sale.bill.options(retry=Retry(backoffs=[20, 40])).retry.backoffs == (20, 40)
