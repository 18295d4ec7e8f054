"""Threads of sync steps: a call that was given up before its thread came to it is not made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from perdure.clock import Computer
from perdure.runtime.shortage import Shortages
from perdure.runtime.steps.threads import ThreadCall, Threads
from perdure.telemetry import Telemetry


class Slow(Computer):
    """A machine whose threads begin when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        def later() -> None:
            self.let.wait()
            target()

        super().start_thread(later, name)


async def test_a_call_that_is_given_up_before_its_thread_comes_to_it_is_not_made() -> None:
    machine, made, ended = Slow(), [], asyncio.Queue[object]()
    threads = Threads(asyncio.get_running_loop(), machine, Shortages(Telemetry(), machine.monotonic))

    def call(name: str) -> ThreadCall:
        return ThreadCall(
            lambda: made.append(name), lambda: None, lambda result, error: ended.put_nowait((name, error))
        )

    given_up, other = call("given up"), call("other")
    threads.call(given_up)
    threads.call(other)
    threads.give_up(given_up)
    machine.let.set()
    told = dict([await ended.get(), await ended.get()])  # type: ignore[list-item]
    threads.close()
    assert made == ["other"]
    assert isinstance(told["given up"], asyncio.CancelledError) and told["other"] is None
