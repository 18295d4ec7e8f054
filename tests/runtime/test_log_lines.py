"""Other people's texts in a line of the log: none of them makes a line of its own."""

from __future__ import annotations

import logging

import pytest

from perdure.clock import Computer
from perdure.errors import InvalidUrl
from perdure.logs import logger
from perdure.store.url import store_for

FORGED = "A-1\n2026-01-01 00:00:00 INFO all is well\x1b[2J\r\x85\u2028"


def test_a_key_with_line_feeds_stays_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    logger("process").warning("the process %s failed: %s (%d)", FORGED, ValueError(FORGED), 7)
    (line,) = caplog.messages
    assert line.isprintable()
    assert "A-1\\n2026" in line and line.endswith("(7)")


def test_a_stack_keeps_its_lines_behind_a_margin(caplog: pytest.LogCaptureFixture) -> None:
    logger("worker").error(
        "the step %s blocks. The stack:\n%s", FORGED, "File a\n  line 1\n2026-01-01 INFO all is well"
    )
    first, *rest = caplog.messages[0].split("\n")
    assert first.isprintable()
    assert len(rest) == 3 and all(line.startswith("    ") for line in rest)


def test_every_logger_of_ours_tames() -> None:
    ours = [name for name in logging.root.manager.loggerDict if name.startswith("perdure.")]
    assert {"perdure.process", "perdure.step", "perdure.worker"} <= {*ours}
    assert [name for name in ours if len(logging.getLogger(name).filters) != 1] == []


@pytest.mark.parametrize(
    "url",
    [
        "s3cret@host/db",
        "s3cret:user@host/db",
        "sqlite://user:s3cret@host/db",
        "sqlite://s3cret@host/db?x=1",
        "postgresql://u@one:1,u:s3cret@two:2/db",
    ],
)
def test_a_malformed_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        store_for(url, Computer())
    assert "s3cret" not in str(refused.value)
