"""How many processes a second are examined in the background: set by the program, or by its configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import settings
from perdure.errors import DefinitionError
from perdure.runtime.options import WorkerOptions


def test_the_file_counts_more_than_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.check_rate(7.0) == 7.0
    (tmp_path / "perdure.toml").write_text("[checks]\nrate = 0\n")
    assert settings.check_rate(7.0) == 0.0


@pytest.mark.parametrize("wrong", ["checks = 5", "[checks]\nrate = true", "[checks]\nrate = -1", "[checks]\npace = 1"])
def test_a_rate_that_makes_no_sense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text(wrong)
    with pytest.raises(DefinitionError, match="checks"):
        settings.check_rate(7.0)
    with pytest.raises(DefinitionError, match="check_rate"):
        WorkerOptions(check_rate=-1)
