"""A breaker's numbers, set by its name in a file and in the program; and what is refused when the worker starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Breaker, Engine, WorkerOptions
from perdure.errors import DefinitionError, ProcessFailed
from perdure.kernel.breaker import BreakerSettings
from perdure.settings import CONFIG
from tests.breakers.bank import ALL, paying
from tests.runtime.conftest import LIMIT, Open, until


async def test_a_breaker_that_is_set_by_its_name_opens_as_the_file_says(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "perdure.toml"
    file.write_text("[breakers.bank]\nfailures = 1\nopen_for = 500\n")
    monkeypatch.setenv(CONFIG, str(file))
    options = WorkerOptions(breakers={"bank": {"failures": 100, "within": 30}})
    engine, _ = await opened(work=True, workflows=ALL, options=options)
    await engine.start(paying, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    assert engine.metrics()["step_failures"] == 1
    seen = await engine.breakers.state("bank")
    assert seen.state == "open" and seen.until is not None and seen.since is not None
    assert (seen.until - seen.since).total_seconds() == 500


async def test_a_breaker_that_is_set_in_the_program_opens_as_that_says(opened: Open) -> None:
    options = WorkerOptions(breakers={"bank": {"failures": 1_000}})
    engine, _ = await opened(work=True, workflows=ALL, options=options)
    with pytest.raises(ProcessFailed):
        await (await engine.start(paying, 1)).result(LIMIT)
    assert (await engine.breakers.state("bank")).state == "closed"


def test_what_is_left_out_stays_and_a_longer_time_lifts_the_longest_one() -> None:
    settings = BreakerSettings((("a file", {"bank": {"open_for": 900}, "post": {"longest": 10}}),))
    bank = settings.applied(Breaker("bank", failures=7, longest=600))
    assert (bank.failures, bank.open_for, bank.longest) == (7, 900, 900)
    post = settings.applied(Breaker("post", open_for=30))
    assert (post.open_for, post.longest) == (10, 10)
    assert settings.applied(Breaker("other")) == Breaker("other")


@pytest.mark.parametrize(
    "given",
    [
        {"bank": {"failures": 0}},
        {"bank": {"failures": "many"}},
        {"bank": {"fails": 3}},
        {"bank": 3},
        {"bank": {"open_for": "long"}},
        3,
    ],
)
def test_what_makes_no_sense_is_refused_when_the_worker_starts(given: Any) -> None:
    with pytest.raises(DefinitionError, match=r"failures|open_for|names|bank"):
        Engine("sqlite:///:memory:", work=True, workflows=ALL, options=WorkerOptions(breakers=given))
