"""A quarantine worker by itself: it waits for its store, as every worker does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import quarantined
from perdure.engine import Engine

NOBODY_THERE = "postgresql://nobody@127.0.0.1:1/nothing"


async def test_a_quarantine_worker_waits_for_a_store_that_is_away(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quarantined, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(quarantined, "PATIENCE_SECONDS", 0.0)
    urls = [NOBODY_THERE, NOBODY_THERE, store_url]
    built = []

    def build() -> Engine:
        built.append(Engine(urls[len(built)], work=True, workflows=[], alone=True))
        return built[-1]

    with caplog.at_level(logging.WARNING, logger="perdure"):
        async with asyncio.timeout(60):
            await quarantined.run_alone(build)
    assert len(built) == 3
    assert sum("Trying again" in message for message in caplog.messages) == 2
