"""The witness: writes evidence into the store from a thread of its own, while the event loop is blocked."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from perdure import limits
from perdure.clock import Machine
from perdure.errors import PerdureError
from perdure.kernel.worker import Beat
from perdure.store.open import store_for

log = logging.getLogger("perdure")


class Witness:
    """Tells the store at ``url`` one thing at a time; ``told`` is what it has told last."""

    def __init__(self, url: str, machine: Machine) -> None:
        self.url = url
        self.machine = machine
        self.told: Beat | None = None
        self._telling: threading.Thread | None = None

    def tell(self, beat: Beat) -> None:
        """Have it written, unless the one before is still on its way: ask again at the next look."""
        if self._telling is None or not self._telling.is_alive():
            self._telling = aside(lambda: self._tell(beat), "perdure witness")

    def wait(self, seconds: float) -> None:
        """Give what is on its way so many seconds."""
        if self._telling is not None:
            self._telling.join(seconds)

    def _tell(self, beat: Beat) -> None:
        try:
            asyncio.run(self._written(beat))
        except (PerdureError, OSError, TimeoutError) as error:
            log.warning("what blocks the event loop could not be written into the store: %s", error)

    async def _written(self, beat: Beat) -> None:
        async with asyncio.timeout(limits.EVIDENCE_SECONDS):
            store = store_for(self.url, self.machine)
            await store.open(migrate=False)
            try:
                # If we die here the evidence is missing: the hang counts as a death without it, or as mere silence.
                await store.beat(beat)
                self.told = beat
            finally:
                await store.close()


def aside(function: Callable[[], object], name: str) -> threading.Thread | None:
    """Run it in a thread of its own that keeps nobody from ending; None if the system refuses one just now."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
