"""A hunt: histories on whichever engine is installed, until one breaks a law; run in an OS process of its own.

``python -m tests.simulator.broken.hunt SEEDS SCENARIO``: those seeds, with commas between them, of the ordinary
scenario if the last word is empty. ``FILE`` alone: the case that is kept there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.testing.simulator import simulate
from perdure.testing.simulator.campaign import hosted_in, scenario_of
from perdure.testing.simulator.cluster import Hosted
from perdure.testing.simulator.history import Scenario
from perdure.testing.simulator.loop import CUT_SHORT
from tests.simulator.campaign import Kept
from tests.simulator.scene import WORKFLOWS, scene

PATIENCE_SECONDS = 60.0
"""Processor time after which a history will never end: code of a broken engine may turn in a circle of its own."""
MOST_CALLS = 300_000
"""Ten times as many as a sound engine makes in the longest of a thousand histories."""


def hunt(seeds: Sequence[int], histories: str = "") -> dict[str, object]:
    """The first of the histories with these seeds in which a law is broken."""
    played, workflows = chosen(histories)
    for number, seed in enumerate(seeds, 1):

        def endless(*_: object, number: int = number, seed: int = seed) -> None:
            print(json.dumps({"histories": number, "seed": seed, "law": "it_ends"}), flush=True)
            os._exit(0)  # nothing in such a history could be relied upon to pass an error on

        signal.signal(signal.SIGPROF, endless)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_SECONDS)
        history = simulate(played, seed, workflows=workflows, most=MOST_CALLS)
        if history.violation is not None:
            law = "it_ends" if history.violation.law == CUT_SHORT else history.violation.law
            return {"histories": number, "seed": seed, "law": law}
    return {"histories": len(seeds), "seed": None, "law": ""}


def chosen(histories: str) -> tuple[Scenario, Sequence[Hosted]]:
    """The scenario of that name and what its workers host; the ordinary one if there is no name."""
    if not histories:
        return scene, WORKFLOWS
    found = scenario_of(f"tests.simulator.{histories}")
    return found, hosted_in(found)


def repeat(file: str) -> dict[str, object]:
    """The law that the choices of a kept case break, if they do."""
    kept = msgspec.json.decode(Path(file).read_bytes(), type=Kept)
    history = simulate(scene, kept.seed, choices=kept.choices, workflows=WORKFLOWS)
    law = "" if history.violation is None else history.violation.law
    return {"histories": 1, "seed": kept.seed, "law": law}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(repeat(*words) if len(words) == 1 else hunt([*map(int, words[0].split(","))], *words[1:])))
