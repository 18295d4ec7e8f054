"""A hunt: kills in one plot, on whichever engine is installed, until something is broken; in an OS process of its own.

``python -m tests.simulator.enumeration.hunt purchase 3`` tries every third point of that plot.
"""

from __future__ import annotations

import json
import sys

from tests.simulator.enumeration.plots import PLOTS
from tests.simulator.enumeration.point import KILLS
from tests.simulator.enumeration.tour import hunted

if __name__ == "__main__":
    found = hunted(PLOTS[sys.argv[1]], KILLS, int(sys.argv[2]))
    at, law = ([], None) if found is None else ([str(point) for point in found.points], found.law)
    print(json.dumps({"at": at, "law": law}))
