"""The patterns: evil ones are killed at their deadline, and the other customers have their answers."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_evil_patterns_are_killed_and_the_other_customers_are_served(example: Example, store_url: str) -> None:
    printed = example("patterns", store_url)
    assert printed == [
        "a+        1 found",
        "[!?]      1 found",
        "(a+)+$    takes too long",
        "(a|a)*$   takes too long",
        "a{3}      13 found",
        "cells killed: 2",
    ]
