"""A hunt: histories on whichever engine is installed, until one breaks a law; run in an OS process of its own."""

from __future__ import annotations

import json
import sys

from perdure.testing.simulator import simulate
from tests.simulator.scene import WORKFLOWS, scene


def hunt(first: int, most: int) -> dict[str, object]:
    """The first history, of at most so many from a seed on, in which a law is broken."""
    for number in range(most):
        history = simulate(scene, first + number, workflows=WORKFLOWS)
        if history.violation is not None:
            return {"histories": number + 1, "seed": first + number, "law": history.violation.law}
    return {"histories": most, "seed": None, "law": ""}


if __name__ == "__main__":
    print(json.dumps(hunt(int(sys.argv[1]), int(sys.argv[2]))))
