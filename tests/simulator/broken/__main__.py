"""The gate: how many histories does it take to notice each broken engine? ``python -m tests.simulator.broken``.

``MOST=400`` is how many histories a defect gets at most, ``ONLY=words`` narrows to defects whose names contain them,
``FROM=n`` is the first seed, ``CORES=2`` how many defects are hunted at once. The answer is 1 if one got away.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from tests.simulator.broken import DEFECTS
from tests.simulator.broken.defect import Defect, plant

ROOT = Path(__file__).parents[3]
SECONDS = 1_800.0


def hunted(defect: Defect, first: int, most: int) -> dict[str, Any]:
    """What the hunt for one defect came to: after how many histories which law was broken, if any."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join((str(plant(defect, Path(folder))), str(ROOT)))
        hunt = subprocess.run(
            [sys.executable, "-m", "tests.simulator.broken.hunt", str(first), str(most)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    lines = hunt.stdout.strip().splitlines()
    if hunt.returncode or not lines:
        return {"histories": 0, "seed": None, "law": f"it does not run: {hunt.stderr.strip()[-300:]}"}
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def main(words: Sequence[str]) -> int:
    """Hunt every defect that the words name; print a table for people."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    first, most = int(options.get("FROM") or 0), int(options.get("MOST") or 400)
    chosen = [defect for defect in DEFECTS if (options.get("ONLY") or "") in defect.name]
    with ThreadPoolExecutor(int(options.get("CORES") or 2)) as pool:
        found = pool.map(lambda defect: hunted(defect, first, most), chosen)
        caught, away = [], []
        print("| the engine, broken | rule | noticed after histories | by |\n|---|---|---|---|")
        for defect, told in zip(chosen, found, strict=True):
            if told["law"]:
                caught.append(told["histories"])
            elif not defect.harmless:
                away.append(defect.name)
            after = told["histories"] if told["law"] else f"not in {told['histories']}"
            print(
                f"| {defect.name} | {defect.rule} | {after} | {told['law'] or defect.harmless or '**nobody**'} |",
                flush=True,
            )
    if caught:
        print(f"\n{len(caught)} of {len(chosen)} noticed, median {median(caught):g} histories, at most {max(caught)}")
    print(f"harmless: {sum(bool(defect.harmless) for defect in chosen)}; got away: {', '.join(away) or 'none'}")
    return int(bool(away))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
