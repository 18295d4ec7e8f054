"""The page on settings has every section, key and variable that the source reads, with the defaults of the source."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from perdure import limits, settings
from perdure.kernel import breaker, missing, outage, policy, retention, sweep_pass
from perdure.kernel.retry import Retry
from tests.house.page import DOCS, rows, spans
from tests.house.tree import Module, modules, planted

PAGE = DOCS / "reference" / "settings.md"
OF_TESTS = "src/perdure/testing/"
"""What only tests need is no setting."""


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of each section of the file, with what counts if they are left out; None if that is no number."""
    closed, rule, retry = breaker.Breaker("any"), outage.OutageRule().breaker, Retry()
    sweeps = {name.replace(" ", "_") for name in sweep_pass.SETTABLE}
    return {
        "policies": {**dict.fromkeys(policy.PROPERTIES), **{name: getattr(retry, name) for name in policy.OF_RETRY}}
        | {"timeout": limits.STEP_TIMEOUT_SECONDS},
        "breakers": {name: getattr(closed, name) for name in breaker.SETTINGS},
        "outages": {name: getattr(rule, name.replace("canaries", "probes")) for name in outage.SETTINGS},
        "missing": dict.fromkeys(missing.SETTINGS),
        "sweeps": {name: import_module(f"perdure.runtime.sweeps.{name}").SECONDS for name in sweeps},
        "checks": {"rate": limits.CHECKED_RECORDS},
        "retention": dict.fromkeys(retention.SETTINGS),
    }


VARIABLES = {
    "PERDURE_URL": f"`{settings.DEFAULT_URL}`",
    "PERDURE_CONFIG": f"`{settings.CONFIG_FILE}`",
    "PERDURE_PAYLOAD_BYTES": str(limits.INSIDE_PAYLOAD_BYTES),
    "PERDURE_INBOX_MESSAGES": str(limits.INBOX_RECORDS),
    "PERDURE_INBOX_BYTES": str(limits.INBOX_BYTES),
}
"""The defaults of those variables that have one in the source."""


def variables(*every: Module) -> set[str]:
    """The variables of the environment that stand in these modules as a text of their own."""
    return {found for module in every for found in re.findall(r"[\"'](PERDURE_[A-Z_]+)[\"']", module.text)}


@cache
def variables_of_source() -> set[str]:
    """The variables that programs of ours read."""
    return variables(*(module for module in modules("src") if not module.name.startswith(OF_TESTS)))


def table(header: str) -> dict[str, list[str]]:
    """The rows of a table of the page by what stands first, each without it."""
    return {spans(first)[0]: rest for first, *rest in rows(PAGE.read_text(encoding="utf-8"), header)}


def test_the_page_has_every_section_of_the_file() -> None:
    assert sorted(table("section")) == sorted(settings._SECTIONS) == sorted(defaults())


@pytest.mark.parametrize("section", settings._SECTIONS)
def test_the_page_has_every_key_of_a_section_with_its_default(section: str) -> None:
    told = table(section)
    assert sorted(told) == sorted(defaults()[section])
    for key, default in defaults()[section].items():
        if type(default) in (int, float):
            assert told[key][0] == f"{default:g}", key


def test_the_page_has_every_variable_that_is_read_with_its_default() -> None:
    told = table("variable")
    assert sorted(told) == sorted(variables_of_source())
    assert {name: told[name][1] for name in VARIABLES} == VARIABLES


def test_a_variable_that_is_read_anywhere_is_found() -> None:
    assert variables(planted('import os\nos.environ.get("PERDURE_ABSENT")\n')) == {"PERDURE_ABSENT"}
    assert variables(planted('"""PERDURE_ABSENT is not read."""\n')) == set()
