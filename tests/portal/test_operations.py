"""Operations from a program without an event loop."""

from __future__ import annotations

from perdure import BlockingEngine
from tests.operations import bank


def test_an_operation_is_previewed_started_and_waited_for(store_url: str) -> None:
    bank.down.set()
    with BlockingEngine(store_url, work=True, workflows=[bank], migrate=True) as engine:
        handle = engine.start(bank.payment.options(key="B-1"), "B-1")
        while engine.count(where="status = failed") != {"payment": {"failed": 1}}:
            engine.list()
        bank.down.clear()
        assert engine.operations.preview("retry", "error = ConnectionError").would == 1
        operation = engine.operations.start("retry", "error = ConnectionError", watch=0)
        assert operation.result(20).done == 1
        assert engine.operations.handle(operation.id).status().phase == "done"
        assert handle.result(20) == "B-1"
        waiting = engine.start(bank.payment.options(key="B-2", delay=3600), "B-2")
        held = engine.operations.start("hold", "key = B-2", watch=0)
        assert held.result(20).done == 1 and engine.operations.preview_undo(held.id).would == 1
        assert engine.operations.undo(held.id, why="the wrong one").result(20).done == 1
        waiting.remove(force=True)
        assert [id for id, _ in engine.operations.list()][-1] == operation.id
        assert [one.kind for one in engine.failures()] == [] and engine.board() == []
