"""The short form of ``make fuzz``: good examples, all earlier finds, and a few changed ones for every entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.entries import ENTRIES
from tests.fuzz.entry import Entry, refused
from tests.fuzz.found import FOUND
from tests.fuzz.mutation import Find, hunt, shortest, try_one

EACH = 200
"""Changed examples; `make fuzz` goes on for as long as it is told."""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_whatever_is_fed_is_taken_and_given_back_or_refused_by_an_error_that_says_what_to_do(entry: Entry) -> None:
    assert hunt(entry, 1, lambda fed: fed < EACH) >= EACH


def test_a_parser_that_raises_anything_else_is_found_and_its_input_is_cut_short() -> None:
    def canary(raw: bytes) -> None:
        with refused():
            if b"[" in raw:
                raise KeyError("an error of somebody else's")

    entry = Entry("canary", canary, (b"harmless",))
    with pytest.raises(Find, match=r"canary: .* ends with KeyError") as found:
        hunt(entry, 1, lambda fed: fed < 100_000)
    assert found.value.raw == b"["


def test_a_refusal_must_be_short_say_what_to_do_and_keep_the_password() -> None:
    from perdure.errors import InvalidUrl

    for text, secret in (("x" * 20_000 + ". y", None), ("bad", None), ("bad: u:word@h. mend", "word")):
        with pytest.raises(AssertionError), refused(secret):
            raise InvalidUrl(text)
    with refused("word"):
        raise InvalidUrl("bad. mend")


def test_every_find_belongs_to_an_entry() -> None:
    assert FOUND.keys() <= {entry.name for entry in ENTRIES}
    assert {path.stem for path in Path(__file__).parent.glob("*.py")} >= {"found", "entries"}


def test_a_find_is_cut_to_the_byte_that_matters() -> None:
    def last(raw: bytes) -> None:
        raw.decode("ascii")

    entry = Entry("last", last, ())
    found = try_one(entry, b"a lot of text \xff and more of it")
    assert found is not None and shortest(entry, found).raw == b"\xff"
