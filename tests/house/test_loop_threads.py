"""The threads of the event loop belong to users' steps, which may hang in them: the engine's own work uses others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import PACKAGE, Module, dotted, modules, planted

BORROWERS = frozenset(
    {
        "to_thread", "run_in_executor", "getaddrinfo", "getnameinfo", "create_connection", "create_server",
        "create_datagram_endpoint", "open_connection", "start_server",
    }
)  # fmt: skip
"""What works in the threads of the event loop, or looks up a host in them."""

ALLOWED = {
    "store/sealed/offload.py _in_thread": "it names threads of the folder's own",
    "store/postgres/driver_loop.py create_connection": "it is given an address, which is not looked up",
    "monitoring/http.py open": "it is given addresses",
}


def borrowed(module: Module) -> Iterator[str]:
    """The functions of a module that use the threads of the event loop."""
    calls = [node for node in module.nodes(ast.Call) if _borrows(dotted(node.func))]
    for function in module.functions():
        if any(function.lineno <= node.lineno <= (function.end_lineno or 0) for node in calls):
            yield function.name


def _borrows(called: str) -> bool:
    return called.rpartition(".")[2] in BORROWERS and not called.startswith("socket.")


def found() -> set[str]:
    """All of them, but for what is only for tests."""
    files = [module for module in modules("src/perdure") if "testing" not in module.path.parts]
    return {f"{module.path.relative_to(PACKAGE)} {name}" for module in files for name in borrowed(module)}


def test_the_engine_needs_no_thread_in_which_a_step_may_hang() -> None:
    assert sorted(found() - set(ALLOWED)) == [], "use perdure.futures: in_thread, looked_up"


def test_every_reason_to_use_threads_of_the_event_loop_still_holds() -> None:
    assert sorted(set(ALLOWED) - found()) == []


def test_a_use_of_these_threads_is_found_where_it_is_planted() -> None:
    assert list(borrowed(planted("async def f():\n    return await asyncio.to_thread(g)\n"))) == ["f"]
    assert list(borrowed(planted("def f(loop):\n    return loop.run_in_executor(None, g)\n"))) == ["f"]
    assert not list(borrowed(planted("def f():\n    return socket.getaddrinfo(host, 0)\n")))
