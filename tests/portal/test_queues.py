"""Queues through the portal: the verbs of ``engine.queues`` as ordinary calls."""

from __future__ import annotations

import pytest

from perdure import BlockingEngine
from perdure.errors import InvalidInput


def test_queues_are_limited_blocked_and_listed_without_an_event_loop(store_url: str) -> None:
    with BlockingEngine(store_url, migrate=True) as engine:
        engine.queues.limit("bank", concurrency=5, who="ana")
        assert engine.queues.block("bank", who="bob", why="no money").blocked_by == "bob"
        assert engine.queues.unblock("bank").blocked_at is None
        [bank] = engine.queues.list()
        assert (bank.name, bank.concurrency, bank.waiting, bank.running) == ("bank", 5, 0, 0)
        with pytest.raises(InvalidInput):
            engine.queues.limit("bank", rate=0)
