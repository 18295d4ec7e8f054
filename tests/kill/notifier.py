"""A process with a reply address, hosted by victims that are killed around its commits."""

from __future__ import annotations

from perdure import workflow
from tests.kill.workload import mark


@workflow
async def informed() -> int:
    return await mark(1) + await mark(2)
