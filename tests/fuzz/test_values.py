"""Values of all kinds, made by hypothesis, at the doors that take values: kept as they were, or refused with advice."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import Search
from perdure.authoring.queue import routing
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.client import validation
from perdure.errors import InvalidInput, PayloadError, PerdureError, UnreadablePayload
from perdure.kernel.call_shape import CallShape
from perdure.kernel.failure import safe_text, unsafe
from perdure.kernel.payload import decode, encode
from perdure.kernel.plain import same, shown
from perdure.kernel.process import merged, missing
from perdure.kernel.retry import Retry
from perdure.store.sealed.codec import AesGcm, Zstd
from perdure.store.sealed.seal import Seal
from tests.fuzz.outside import SECRET, SLOT

BRIEF = settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
"""The same examples each time; `make fuzz` is for those that nobody has seen."""

ANY_TEXT = st.text(st.characters(), max_size=60)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(10**30, 10**40) | st.floats() | ANY_TEXT
    | st.binary(max_size=20) | st.datetimes(timezones=st.none() | st.just(UTC)) | st.dates() | st.times()
    | st.timedeltas() | st.decimals() | st.uuids() | st.complex_numbers() | st.just(object()) | st.just(print)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(ANY_TEXT | st.integers() | st.booleans(), inner, max_size=4)
        | st.frozensets(st.integers() | ANY_TEXT, max_size=4)
    ),
    max_leaves=12,
)


FEW = SCALARS | st.lists(SCALARS, max_size=2) | st.tuples(SCALARS, SCALARS)
"""For doors that take no trees."""


async def call(a: Any, b: int | None = None, *, c: dict[str, Any] | list[Any] | str = "") -> Any: ...


SHAPE = CallShape(call)


def advises(error: Exception) -> None:
    """Raise AssertionError unless the error's text says more than what is wrong."""
    assert re.search(r"[.;:] ", str(error)), str(error)


@BRIEF
@given(VALUES)
def test_any_value_is_refused_or_written_in_one_way(value: Any) -> None:
    try:
        raw = encode(value)
    except PayloadError as error:
        advises(error)
        return
    back = decode(raw)
    assert encode(back) == raw


@BRIEF
@given(SCALARS)
def test_a_value_with_its_type_comes_back_exactly_or_is_refused(value: Any) -> None:
    kind = type(value)
    if kind in (int, float, str, bool, bytes, datetime, date, time, timedelta, Decimal):
        try:
            raw = encode(value, type=kind)
        except PayloadError:
            return
        assert same(value, decode(raw, kind))


@BRIEF
@given(st.lists(VALUES, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c", "d", ""]), VALUES, max_size=2))
def test_any_call_is_refused_or_comes_back_as_it_was(args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        raw = SHAPE.encode(args, kwargs)
    except InvalidInput:
        return
    back, named = SHAPE.decode(raw)
    assert SHAPE.encode(back, named) == raw


@BRIEF
@given(st.dictionaries(ANY_TEXT, VALUES, max_size=4), st.dictionaries(ANY_TEXT, VALUES, max_size=4))
def test_attributes_are_refused_or_show_what_was_changed(first: dict[str, Any], then: dict[str, Any]) -> None:
    try:
        stored = merged(merged(None, first), then)
    except InvalidInput:
        return
    assert missing(stored, {name: value for name, value in then.items() if value is not None}) == {}


@BRIEF
@given(ANY_TEXT, st.integers(20, 200), st.booleans())
def test_safe_text_is_short_harmless_and_stays_as_it_is(text: str, limit: int, keep_end: bool) -> None:
    safe = safe_text(text, limit, keep_end=keep_end)
    assert len(safe.encode()) <= limit
    assert unsafe().search(safe) is None
    assert safe_text(safe, limit, keep_end=keep_end) == safe
    assert len(shown(text)) <= 81


@BRIEF
@given(
    st.binary(max_size=200), st.integers(0, 400), st.integers(1, 255), st.integers(0, 3),
)  # fmt: skip
def test_a_sealed_payload_that_was_changed_cut_or_moved_is_refused(raw: bytes, at: int, by: int, how: int) -> None:
    strict = Seal([Zstd(above=8), AesGcm({"a": SECRET}, required=True)])
    sealed = strict.close(raw, SLOT)
    at %= len(sealed)
    changed = {
        0: sealed[:at] + bytes([sealed[at] ^ by]) + sealed[at + 1 :],
        1: sealed[:at],
        2: sealed + bytes([by]),
        3: sealed[:at] + bytes([by]) + sealed[at:],
    }[how]
    if changed == sealed:
        return
    for slot, given_raw in ((SLOT, changed), (SLOT._replace(says=b"something else"), sealed)):
        try:
            opened = strict.open(given_raw, slot)
        except UnreadablePayload as error:
            advises(error)
        else:
            raise AssertionError(f"{given_raw!r} was opened as {opened!r}")


@BRIEF
@given(FEW, FEW, FEW, FEW)
def test_limits_and_searches_of_any_type_are_taken_or_refused(a: Any, b: Any, c: Any, d: Any) -> None:
    for ask in (
        lambda: validation.duration(a, "the deadline"),
        lambda: validation.timeout(b),
        lambda: validation.sender(a, b, c),
        lambda: validation.signal(a, b, c, "", "", ""),
        lambda: validation.first_signal((a, b)),
        lambda: validation.first_signal(c),
        lambda: validation.rows(d, "the limit"),
        lambda: validation.reference(a),
        lambda: validation.search(Search(kind=a, key=b, created_from=c, limit=d)),
        lambda: validation.search(Search(attributes=((a, b),), ids=c, before_id=d)),
        lambda: validation.search(a),
        lambda: validation.attributes({"a": b}),
    ):
        try:
            ask()
        except PerdureError as error:
            str(error).encode(errors="backslashreplace")


@BRIEF
@given(FEW, FEW, FEW)
def test_settings_of_any_type_are_taken_or_refused_when_they_are_defined(a: Any, b: Any, c: Any) -> None:
    async def work() -> None: ...

    for define in (
        lambda: step(name=a, timeout=b, memory=c)(work),
        lambda: step(retry=a, queue=b, priority=c)(work),
        lambda: step(queue="q", total=a, accept=b, cost=c)(work),
        lambda: workflow(name=a, version=b, deadline=c)(work),
        lambda: workflow(name="hypothesis", idle=a)(work),
        lambda: routing("a step", None, queue="q", label=a, share=b, delay=c),
        lambda: Retry(attempts=a, first=b, cap=c),
    ):
        try:
            define()
        except PerdureError:
            pass
