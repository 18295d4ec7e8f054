"""Health at the terminal: whether the database and its workers are fit, with an exit code for monitoring."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.cli import output
from perdure.cli.options import DEFAULT_URL, Json, Url, connected
from perdure.cli.rows import Rows
from perdure.client.health import Health, HealthFinding, HealthLevel
from perdure.client.health import health as looked_at
from perdure.errors import InvalidInput, StoreError


class HealthLine(msgspec.Struct, frozen=True):
    """One finding, for programs."""

    check: str
    level: str
    text: str


async def health(*, timeout: float = 10.0, json: Json = False, url: Url = DEFAULT_URL) -> int:
    """Say whether the database and its workers are fit.

    Exit codes: 0 passing; 1 warning; 2 critical. Monitoring systems
    like Nagios and Consul read them so.

    Parameters
    ----------
    timeout
        Seconds after which a database that does not answer is critical.
    """
    if not timeout > 0:
        raise InvalidInput(f"--timeout {timeout:g} leaves no time; give a number of seconds above 0")
    try:
        async with asyncio.timeout(timeout), connected(url) as engine:
            seen = await looked_at(engine.store)
    except TimeoutError:
        seen = _critical(f"the database has not answered for {timeout:g} s")
    except StoreError as error:
        seen = _critical(f"the database cannot be opened: {error}")
    if json:
        findings = [HealthLine(one.check, one.level.word, one.text) for one in seen.findings]
        output.show_json({"level": seen.level.word, "findings": findings})
    else:
        rows = Rows("check", "level", "what was found")
        for one in seen.findings:
            rows.add(one.check, one.level.word, one.text)
        output.show(rows)
    return int(seen.level)


def _critical(text: str) -> Health:
    return Health((HealthFinding("database", HealthLevel.CRITICAL, text),))
