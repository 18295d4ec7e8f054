"""The verbs of the blocking engine: the client's own, with their parameters, answers and errors."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from perdure import (
    BlockingEngine,
    Engine,
    Handle,
    ProcessFailed,
    Search,
    Status,
)
from perdure.client.client import Client
from perdure.errors import IllegalMove, InvalidInput, KeyConflict, ProcessCancelled, ProcessNotFound, UnknownKind
from perdure.kernel.message import SendVerdict
from perdure.portal import BlockingHandle
from tests.portal import shop
from tests.runtime.conftest import until

LIMIT = 20.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""

RECORDS = {"row"}
"""Coroutines of the client that answer the store's records, which no application needs."""


def verbs(kind: type) -> dict[str, object]:
    """The public coroutine functions of a class."""
    return {
        name: member
        for name, member in vars(kind).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("kind", "blocking"), [(Client, BlockingEngine), *((part, BlockingHandle) for part in (Handle, *Handle.__bases__))]
)
def test_every_verb_has_its_blocking_one_with_the_same_parameters(kind: type, blocking: type) -> None:
    for name, verb in verbs(kind).items():
        if name not in RECORDS:
            own = getattr(blocking, name, None)
            assert own is not None, f"{blocking.__name__} has no {name}: add `{name} = _verb({kind.__name__}.{name})`"
            assert inspect.signature(own).parameters.keys() == inspect.signature(verb).parameters.keys()  # type: ignore[arg-type]
            assert not inspect.iscoroutinefunction(own)
            assert own.__doc__


def test_a_script_starts_tells_and_waits_without_an_event_loop(engine: BlockingEngine) -> None:
    handle = engine.start(shop.order.options(key="A-1", attributes={"customer": "Ann"}), "A-1")
    assert (handle.created, handle.kind, handle.key) == (True, "order", "A-1")
    assert engine.process(handle.id).status().status is handle.status().status is Status.RUNNING
    assert handle.signal("paid", "Ann", key="once") is SendVerdict.DELIVERED
    assert handle.signal("paid", "Bob", key="once") is SendVerdict.DUPLICATE
    assert handle.result(LIMIT) == "receipt A-1 by Ann" == engine.process(handle.id).result(timeout=LIMIT)
    assert [event.number for event in handle.history()] == [
        event.number for event in engine.process(handle.id).history()
    ]
    assert [view.key for view in engine.list(Search(kind="order"))] == ["A-1"]
    assert engine.count() == {"order": {"completed": 1}}
    engine.run(lambda opened: until(lambda: opened.metrics()["completed"]))
    assert engine.metrics()["completed"] == 1


def test_many_are_started_at_once_and_found_by_their_keys(engine: BlockingEngine) -> None:
    handles = engine.start_many(shop.order_paid, [("A",), ("B",)], keys=["A", "B"])
    assert engine.results(handles, LIMIT) == [handle.result(LIMIT) for handle in handles] == ["receipt A", "receipt B"]
    with pytest.raises(InvalidInput, match="no handle of this engine"):
        engine.results([handles[0].id])  # type: ignore[list-item]
    assert engine.handle(shop.order_paid, "B").id == handles[1].id


def test_what_operators_tell_processes_is_told(engine: BlockingEngine) -> None:
    cancelled, ended = engine.start_many(shop.order, [("A",), ("B",)])
    cancelled.cancel(who="Ann", why="a test")
    ended.terminate(who="Ann", why="a test")
    for handle in (cancelled, ended):
        with pytest.raises(ProcessCancelled):
            handle.result(LIMIT)
    failed = engine.start(shop.refused)
    with pytest.raises(ProcessFailed, match="the card is blocked"):
        failed.result(LIMIT)
    failed.retry(who="Ann", why="the card is good again")
    with pytest.raises(ProcessFailed):
        failed.result(LIMIT)
    assert failed.status().run == 2


def test_a_process_is_forked(engine: BlockingEngine) -> None:
    old = engine.start(shop.order_paid, "A")
    assert old.result(LIMIT) == "receipt A"
    fork = old.fork(key="again", why="to see it once more")
    assert (fork.created, fork.key, fork.result(LIMIT)) == (True, "again", "receipt A")
    assert fork.id != old.id


def test_the_errors_are_those_of_the_client(engine: BlockingEngine) -> None:
    handle = engine.start(shop.order.options(key="A-1"), "A-1")
    with pytest.raises(KeyConflict):
        engine.start(shop.order.options(key="A-1"), "another")
    with pytest.raises(UnknownKind):
        engine.start("ordr", "A-2")
    with pytest.raises(InvalidInput):
        engine.start(shop.order, object())
    with pytest.raises(ProcessNotFound):
        engine.handle(shop.order, "A-3")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    with pytest.raises(TypeError):
        handle.result(until=7)  # type: ignore[call-arg]
    handle.terminate()
    with pytest.raises(IllegalMove):
        handle.terminate()


def test_many_threads_share_one_engine(engine: BlockingEngine) -> None:
    def buy(number: int) -> str:
        handle = engine.start(shop.order.options(key=f"{number // 2}"), f"{number}") if number % 2 == 0 else None
        if handle is None:
            return engine.start(shop.order_paid, f"{number}").result(LIMIT)
        handle.signal("paid", "Ann")
        return str(handle.result(LIMIT))

    with ThreadPoolExecutor(16) as threads:
        bought = list(threads.map(buy, range(64)))
    assert bought == [f"receipt {number}{'' if number % 2 else ' by Ann'}" for number in range(64)]


def test_threads_that_come_first_at_once_open_it_once(store_url: str) -> None:
    engine = BlockingEngine(store_url, migrate=True)

    async def itself(opened: Engine) -> Engine:
        return opened

    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(lambda _: engine.run(itself), range(8)))
    engine.close()
    assert len(set(map(id, opened))) == 1


def test_one_that_runs_no_work_waits_for_what_a_worker_does(engine: BlockingEngine, store_url: str) -> None:
    with BlockingEngine(store_url, migrate=True) as client:
        handle = client.start(shop.order, "A-1")
        handle.signal("paid", "Ann")
        assert handle.result(LIMIT) == "receipt A-1 by Ann"


def test_code_of_ones_own_runs_on_the_engines_event_loop(engine: BlockingEngine) -> None:
    request: ContextVar[str] = ContextVar("request")

    async def buy(opened: Engine, name: str, *, payer: str) -> tuple[str, str]:
        handle = await opened.start(shop.order, name)
        await handle.signal("paid", payer)
        return str(await handle.result(LIMIT)), request.get()

    request.set("r-1")
    assert engine.run(buy, "A-1", payer="Ann") == ("receipt A-1 by Ann", "r-1")


def test_a_workflows_parameters_may_be_called_as_ours_are(engine: BlockingEngine) -> None:
    handle = engine.start(shop.namesake, workflow="a", engine="b", holder="c", verb="d", function="e")
    assert handle.result(LIMIT) == "abcde"
