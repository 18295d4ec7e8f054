"""How the interpreter was built stands beside the figures: PGO and LTO are read from what it was configured with."""

from __future__ import annotations

import sys

import pytest

from bench.interpreter import build_of, built


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'--enable-optimizations' '--with-lto' '--enable-shared'", "with PGO and with LTO"),
        ("'--enable-optimizations'", "with PGO and without LTO"),
        ("'--with-lto=thin' '--prefix=/usr'", "without PGO and with LTO"),
        ("'--with-lto=no' '--enable-optimizations=no'", "without PGO and without LTO"),
        ("-O3 -fprofile-use -fprofile-correction -flto=auto", "with PGO and with LTO"),
        ("-O3 -fprofile-instr-use=code.profclangd", "with PGO and without LTO"),
        ("'--prefix=/usr'", "without PGO and without LTO"),
    ],
)
def test_pgo_and_lto_are_read_from_the_configuration(arguments: str, said: str) -> None:
    assert built("GCC 12.2.0", arguments) == f"Python built by GCC 12.2.0, configured {said}"


def test_an_interpreter_that_does_not_tell_its_configuration_is_not_said_to_lack_anything() -> None:
    assert built("MSC v.1944", "") == "Python built by MSC v.1944, configuration unknown"


def test_an_interpreter_is_asked_itself() -> None:
    assert build_of(sys.executable).startswith("Python built by ")
