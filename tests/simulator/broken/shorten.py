"""Shortening: the first history in which the engine that is installed breaks a law is shrunk; an OS process of its own.

``python -m tests.simulator.broken.shorten FIRST MOST`` looks through so many seeds.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from perdure.testing.simulator import History, simulate
from perdure.testing.simulator.choice import Record
from perdure.testing.simulator.shrink import shrink
from tests.simulator.scene import WORKFLOWS, scene


def played(seed: int, choices: Record | None = None, most: int | None = None) -> History:
    return simulate(scene, seed, workflows=WORKFLOWS, choices=choices, most=most)


def shorten(first: int, most: int) -> dict[str, object]:
    """How many decisions the first failing history had, and has when it is shrunk; nothing if none fails."""
    for seed in range(first, first + most):
        failed = played(seed)
        if failed.violation is not None:
            smallest = shrink(failed, partial(played, seed))
            return {"seed": seed, "law": failed.violation.law, "had": failed.decisions, "has": smallest.decisions}
    return {}


if __name__ == "__main__":
    print(json.dumps(shorten(int(sys.argv[1]), int(sys.argv[2]))))
