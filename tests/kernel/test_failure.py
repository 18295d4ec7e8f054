"""Failures: any error can be recorded, in bounded texts that are safe to show, and becomes a step's error again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import PayloadError, Permanent, StepError, StepTimeout
from perdure.kernel.failure import Failure, safe_text
from perdure.limits import ERROR_TEXT_BYTES, NAME_BYTES, STACK_TEXT_BYTES


class MuteError(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_failure_keeps_the_class_the_text_and_where_it_came_from() -> None:
    failure = Failure.of(raised(ValueError("no stock")), attempts=3)
    assert (failure.type, failure.message, failure.attempts) == ("ValueError", "no stock", 3)
    assert "test_failure.py" in failure.trace
    assert failure.trace.rstrip().endswith("ValueError: no stock")
    assert Failure.decode(failure.encode()) == failure


def test_timeouts_and_permanent_errors_are_marked() -> None:
    assert Failure.of(TimeoutError()).timeout
    assert not Failure.of(TimeoutError()).permanent
    assert Failure.of(Permanent("x")).permanent
    assert not Failure.of(Permanent("x")).timeout


def test_texts_are_cut_to_their_limits_the_trace_at_its_beginning() -> None:
    failure = Failure.of(raised(type("E" * 1000, (Exception,), {})("é" * 100_000 + "last")))
    assert len(failure.message.encode()) <= ERROR_TEXT_BYTES
    assert failure.message.endswith("… (cut)")
    assert len(failure.trace.encode()) <= STACK_TEXT_BYTES
    assert failure.trace.rstrip().endswith("last")
    assert len(failure.type.encode()) <= NAME_BYTES
    assert Failure.decode(failure.encode()) == failure


def test_a_text_of_exactly_the_limit_is_not_cut() -> None:
    text = "x" * ERROR_TEXT_BYTES
    assert Failure.of(ValueError(text)).message == text
    assert Failure.of(ValueError(text + "x")).message.endswith("(cut)")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("nul\0", "nul\\x00"),
        ("half \ud800", "half \\ud800"),
        ("\u202eevil", "\\u202eevil"),
        ("two\nlines\tkept", "two\nlines\tkept"),
        ("carriage\rreturn", "carriage\\rreturn"),
        ("naïve 😀", "naïve 😀"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert Failure.of(ValueError(text)).message == shown


@given(st.text(st.characters(exclude_categories=[])), st.integers(20, 200), st.booleans())
def test_a_safe_text_is_utf8_within_its_limit(text: str, limit: int, keep_end: bool) -> None:
    assert len(safe_text(text, limit, keep_end=keep_end).encode()) <= limit


@pytest.mark.parametrize(
    "error",
    [
        MuteError(),
        KeyboardInterrupt(),
        SystemExit(3),
        ExceptionGroup("two", [ValueError("a"), OSError("b")]),
        KeyError(),
    ],
)
def test_every_error_can_be_recorded(error: BaseException) -> None:
    failure = Failure.of(raised(error))
    assert failure.type == type(error).__name__
    assert Failure.decode(failure.encode()) == failure


def test_a_failed_step_raises_its_failure_in_the_workflow() -> None:
    error = Failure(type="ValueError", message="no stock", attempts=3).as_step_error("reserve")
    assert type(error) is StepError
    assert (error.step, error.type, error.attempts) == ("reserve", "ValueError", 3)
    assert "'reserve'" in str(error)
    assert "3 times" in str(error)
    assert "ValueError: no stock" in str(error)
    assert "perdure" not in str(error)  # which command helps depends on what the process comes to


def test_a_step_out_of_time_raises_a_timeout_that_ordinary_code_can_catch() -> None:
    error = Failure.of(TimeoutError()).as_step_error("charge")
    assert isinstance(error, StepTimeout)
    assert isinstance(error, TimeoutError)
    assert "tried once: TimeoutError" in str(error)


def test_the_failure_of_a_group_names_the_errors_in_it_and_says_how_many_more_there_are() -> None:
    inner = ExceptionGroup("inner", [KeyError("a"), ValueError("b")])
    failure = Failure.of(ExceptionGroup("tasks", [inner, OSError("c")]))
    assert failure.type == "ExceptionGroup"
    assert failure.message == "tasks (2 sub-exceptions): KeyError: 'a'; ValueError: b; OSError: c"
    many = Failure.of(ExceptionGroup("tasks", [ValueError(str(n)) for n in range(9)]))
    assert many.message.endswith("ValueError: 4; and 4 more")


@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b"[1]", b"\xff", b'{"type":1,"message":"x"}'])
def test_what_records_no_failure_is_refused_with_what_to_do(raw: bytes) -> None:
    with pytest.raises(PayloadError, match=r"`perdure history` shows its bytes: restore them"):
        Failure.decode(raw)
