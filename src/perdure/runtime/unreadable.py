"""An unreadable process: something of it cannot be opened, so that it must not be replayed. It alone is let go."""

from __future__ import annotations

import logging
from collections.abc import Callable

from perdure import limits
from perdure.clock import microseconds
from perdure.errors import PerdureError, StoreUnavailable
from perdure.runtime.activation import Activation

log = logging.getLogger("perdure")


def let_go(
    activation: Activation,
    trouble: PerdureError,
    park: Callable[[Activation, BaseException], None],
    hand_back: Callable[[Activation, int], None],
) -> None:
    """Park the process as broken, with the reason; or put it off, if what it needs only cannot be reached now."""
    if isinstance(trouble, StoreUnavailable):
        log.warning("a process is put off for %g s: %s", limits.PUT_OFF_SECONDS, trouble)
        hand_back(activation, microseconds(limits.PUT_OFF_SECONDS))
    else:
        log.error("a process cannot go on: %s", trouble)
        park(activation, trouble)
