"""The ready queue: processes whose next turn can run, a bounded number between two breaths of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from perdure.authoring.presence import staged
from perdure.runtime.activation import Activation
from perdure.runtime.store_time import StoreTime

TURNS_PER_PASS = 200


class Ready:
    """First in, first out; a process waits in it once, whatever arrives for it meanwhile.

    Turns between two breaths have one time: that of their beginning, which is no earlier than what came in for them.
    """

    def __init__(self, turn: Callable[[Activation, int], None], time: StoreTime) -> None:
        self._turn = turn
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Activation] = deque()
        self._scheduled = False

    def put(self, activation: Activation) -> None:
        """Have the process's next turn run soon, with whatever is in its inputs by then."""
        if activation.queued or activation.gone:
            return
        activation.queued = True
        self._queue.append(activation)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        queue = self._queue
        now = self._time.now()
        try:
            with staged():
                for _ in range(min(len(queue), TURNS_PER_PASS)):
                    activation = queue.popleft()
                    activation.queued = False
                    if not activation.gone:
                        self._turn(activation, now)
        finally:  # also when somebody interrupts the worker in a turn: it still has to stop gracefully
            self._scheduled = bool(queue)
            if queue:
                self._loop.call_soon(self._pass)
