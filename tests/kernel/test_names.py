"""Names: which keys are accepted, alike on every store, and how ids are written."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from time import time_ns
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import clock
from perdure.clock import Computer
from perdure.errors import InvalidKey
from perdure.kernel import child
from perdure.kernel.names import check_key, check_name, id_bytes, id_text, is_made_of
from perdure.limits import KEY_BYTES


@pytest.mark.parametrize(
    "key", ["order/A-17", "x", "two words", "Übergröße", "順番", "مفتاح", "😀", "a" * KEY_BYTES, "é" * 127]
)
def test_a_printable_key_is_accepted_unchanged(key: str) -> None:
    assert check_key(key) is key
    assert check_name(key) is key


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "is empty"),
        (" a", "space"),
        ("a ", "space"),
        (" ", "space"),
        ("a\0b", r"U\+0000"),
        ("a\nb", r"U\+000A"),
        ("a\x7fb", r"U\+007F"),
        ("a\u200bb", r"U\+200B"),
        ("\u202eabc", r"U\+202E"),
        ("a\u00a0b", r"U\+00A0"),
        ("a\ud800", r"U\+D800"),
        ("e\u0301", "NFC"),
        ("\u212b", "NFC"),
        ("a" * (KEY_BYTES + 1), "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("x" * 1001, "1001 bytes"),
        (b"a", "type bytes"),
        (None, "type NoneType"),
        (17, "type int"),
    ],
)
def test_a_key_that_people_or_databases_could_mistake_is_refused_with_what_to_do(key: Any, reason: str) -> None:
    for check in (check_key, check_name):
        with pytest.raises(InvalidKey, match=reason) as caught:
            check(key, "the key of the order")
        assert str(caught.value).startswith("the key of the order ")
        assert str(caught.value).endswith(".")
        assert str(caught.value).isprintable()


@given(st.text())
def test_an_accepted_key_is_normal_printable_and_short_and_no_other_is_refused(key: str) -> None:
    fit = (
        len(key) > 0
        and key.isprintable()
        and key == key.strip()
        and unicodedata.normalize("NFC", key) == key
        and len(key.encode()) <= KEY_BYTES
    )
    try:
        assert check_key(key) == key
        assert fit
    except InvalidKey:
        assert not fit


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_written_as_a_uuid_and_read_back(id: bytes) -> None:
    assert id_text(id) == str(UUID(bytes=id))
    assert id_bytes(id_text(id)) == id


def test_fresh_ids_sort_by_time_and_are_version_7() -> None:
    assert UUID(id_text(Computer().new_id())).version == 7


@pytest.mark.parametrize("text", ["", "A-17", "0192f0c1", b"x", None, 5, "g" * 32])
def test_what_is_no_id_is_refused_with_what_to_do(text: Any) -> None:
    with pytest.raises(InvalidKey, match=r"`perdure ps`, or use the key\.$"):
        id_bytes(text)


def test_ids_that_are_made_at_one_moment_are_in_the_order_of_their_making(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time_ns", lambda: time_ns() // 10**9 * 10**9)
    machine = Computer()
    ids = [machine.new_id() for _ in range(20_000)]
    assert ids == sorted(ids) and len(set(ids)) == len(ids)
    deep = [child.descended(id, 3) for id in ids[:4_000]]
    assert deep == sorted(deep), "of children as well, whose ids have their depth in them"
    assert {child.depth(id) for id in deep} == {3} and {child.depth(id) for id in ids} == {0}
    assert {(UUID(bytes=id).version, UUID(bytes=id).variant) for id in ids} == {(7, RFC_4122)}


def test_ids_go_on_upward_though_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, now = Computer(), time_ns()
    first = machine.new_id()
    monkeypatch.setattr(clock, "time_ns", lambda: now - 3600 * 10**9)
    assert first < machine.new_id() < machine.new_id()


FORKING = """
import os
from perdure.clock import Computer
machine = Computer()
machine.new_id()
child = os.fork() == 0
drawn = " ".join(machine.new_id()[8:].hex() for _ in range(9))
os.write(1, f"{drawn} ".encode())
os._exit(0) if child else os.wait()
"""


def test_the_child_of_a_fork_draws_other_ids_than_its_parent() -> None:
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, timeout=60)
    drawn = said.stdout.split()
    assert len(drawn) == len(set(drawn)) == 18


@given(st.text("ab*", max_size=8), st.text("ab\n", max_size=12))
def test_a_star_in_a_pattern_stands_for_any_letters(pattern: str, text: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert is_made_of(text, pattern.split("*")) is (re.fullmatch(expression, text, re.DOTALL) is not None)
