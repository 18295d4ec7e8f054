"""What ``import perdure`` offers: names that say what they are, and hide nothing of the standard library."""

from __future__ import annotations

import builtins
import sys

import perdure


def test_no_public_name_is_that_of_a_standard_module_or_of_a_builtin() -> None:
    names = set(perdure.__all__)
    assert names
    assert names & (set(sys.stdlib_module_names) | set(vars(builtins))) == set()
