"""The watchdog: a thread that writes the stack of whatever blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback

from perdure import limits
from perdure.authoring.turn_loop import turn_running
from perdure.clock import Machine
from perdure.kernel.names import id_text
from perdure.telemetry import Telemetry

log = logging.getLogger("perdure")


class Watchdog:
    """Looks every second whether the loop has ticked; a blocked one is reported once with its stack."""

    def __init__(self, machine: Machine, telemetry: Telemetry, seconds: float = limits.BLOCKED_LOOP_SECONDS) -> None:
        self.machine = machine
        self.telemetry = telemetry
        self.seconds = seconds
        self._ticked = 0.0
        self._reported = False
        self._stop = threading.Event()
        self._watched = threading.get_ident()
        self._handle: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="perdure watchdog", daemon=True)

    def start(self) -> None:
        """Watch the event loop of the calling thread."""
        self._watched = threading.get_ident()
        self._tick()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the thread ends within its next look."""
        self._stop.set()
        if self._handle is not None:
            self._handle.cancel()
        if self._thread.ident is not None:
            self._thread.join()

    def _tick(self) -> None:
        self._ticked = self.machine.monotonic()
        self._reported = False
        self._handle = asyncio.get_running_loop().call_later(self.seconds / 4, self._tick)

    def _watch(self) -> None:
        while not self._stop.wait(self.seconds / 2):
            blocked = self.machine.monotonic() - self._ticked
            if blocked > self.seconds and not self._reported:
                self._reported = True
                self._report(blocked)

    def _report(self, blocked: float) -> None:
        self.telemetry.count("loops_blocked")
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame))[-limits.STACK_TEXT_BYTES :] if frame is not None else "unknown"
        process = turn_running(self._watched)
        where = f"by the code of process {id_text(process)} " if process is not None else ""
        log.error(
            "the event loop has been blocked %sfor %.1f s: no beat is sent, and the leases of this worker will lapse. "
            "Make the blocking call a sync step (it runs in a thread). The stack:\n%s",
            where,
            blocked,
            stack,
        )
