"""A hunt: histories on whichever engine is installed, until one breaks a law; run in an OS process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys

from perdure.testing.simulator import simulate
from tests.simulator.scene import WORKFLOWS, scene

PATIENCE_SECONDS = 60.0
"""Processor time after which a history will never end: broken engines may turn in a circle, in no virtual time."""


def hunt(first: int, most: int) -> dict[str, object]:
    """The first history, of at most so many from a seed on, in which a law is broken."""
    for number in range(most):

        def endless(*_: object, number: int = number) -> None:
            print(json.dumps({"histories": number + 1, "seed": first + number, "law": "it_ends"}), flush=True)
            os._exit(0)  # nothing in such a history could be relied upon to pass an error on

        signal.signal(signal.SIGPROF, endless)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_SECONDS)
        history = simulate(scene, first + number, workflows=WORKFLOWS)
        if history.violation is not None:
            return {"histories": number + 1, "seed": first + number, "law": history.violation.law}
    return {"histories": most, "seed": None, "law": ""}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]), int(sys.argv[2]))))
