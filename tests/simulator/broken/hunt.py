"""A hunt: histories on whichever engine is installed, until one breaks a law; run in an OS process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import msgspec

from perdure.testing.simulator import simulate
from perdure.testing.simulator.loop import CUT_SHORT
from tests.simulator.campaign import Kept
from tests.simulator.scene import WORKFLOWS, scene

PATIENCE_SECONDS = 60.0
"""Processor time after which a history will never end: code of a broken engine may turn in a circle of its own."""
MOST_CALLS = 300_000
"""Ten times as many as a sound engine makes in the longest of a thousand histories."""


def hunt(first: int, most: int) -> dict[str, object]:
    """The first history, of at most so many from a seed on, in which a law is broken."""
    for number in range(most):

        def endless(*_: object, number: int = number) -> None:
            print(json.dumps({"histories": number + 1, "seed": first + number, "law": "it_ends"}), flush=True)
            os._exit(0)  # nothing in such a history could be relied upon to pass an error on

        signal.signal(signal.SIGPROF, endless)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_SECONDS)
        history = simulate(scene, first + number, workflows=WORKFLOWS, most=MOST_CALLS)
        if history.violation is not None:
            law = "it_ends" if history.violation.law == CUT_SHORT else history.violation.law
            return {"histories": number + 1, "seed": first + number, "law": law}
    return {"histories": most, "seed": None, "law": ""}


def repeat(file: str) -> dict[str, object]:
    """The law that the choices of a kept case break, if they do."""
    kept = msgspec.json.decode(Path(file).read_bytes(), type=Kept)
    history = simulate(scene, kept.seed, choices=kept.choices, workflows=WORKFLOWS)
    law = "" if history.violation is None else history.violation.law
    return {"histories": 1, "seed": kept.seed, "law": law}


if __name__ == "__main__":
    print(json.dumps(repeat(sys.argv[1]) if len(sys.argv) == 2 else hunt(int(sys.argv[1]), int(sys.argv[2]))))
