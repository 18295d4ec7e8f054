"""All tests in a few runs side by side: many of them wait for OS processes, and one run would wait for each in turn.

The runs are fixed, so that tests meet the same neighbours each time: a program knows a queued step by its name, and a
simulated worker may host all workflows that the program has. What the others said is shown when the last ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.memory import for_everything

HERE = Path(__file__).parent
APART = (
    (
        "kill/test_hangs.py",
        "kill/test_commit_points.py",
        "kill/test_step_transaction.py",
        "sweeps",
        "runtime/test_cells.py",
        "runtime/test_saga.py",
        "runtime/test_attempts.py",
        "runtime/test_commands_everywhere.py",
        "runtime/test_cut_answers.py",
        "runtime/test_damaged_rows.py",
        "runtime/test_portions.py",
        "runtime/test_ended_incarnation.py",
    ),
    ("kill", "store/sealed/test_conformance.py", "input", "failover", "restored"),
    ("runtime",),
    ("cli", "examples", "pooled", "portal"),
    ("cut", "docs"),
    ("simulator",),
    ("store",),
    ("breakers", "flows", "load", "machines", "notices", "schedules", "transactions", "upgrade"),
)
"""What mostly waits stands beside what mostly computes, so that all end at about the same time.

The folders and files of each run apart; whatever else there is stands in the main one, and what is named below a
folder is left out of that folder's run. ``house`` belongs to `make check`.
"""

NOTHING_RUN = 5
"""What pytest says when none of its tests was selected."""


def main(words: list[str]) -> int:
    """Run them all with these arguments for pytest; the answer is the worst exit code."""
    left_out = [f"--ignore={HERE / name}" for name in ("house", *sum(APART, ()))]
    runs = {", ".join(places): _where(places) for places in APART}
    return together(runs | {"whatever else there is": [str(HERE), *left_out]}, words)


def together(runs: dict[str, list[str]], words: list[str]) -> int:
    """Run pytest on the places of each run; the last run is seen at work. The answer is the worst exit code.

    What the tests write is kept in memory where that can be, and is gone at the end.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-tests-", dir=for_everything()) as folder:
        Path(folder).chmod(0o1777)  # as any such folder: a server that root starts runs as another user
        os.environ["TMPDIR"] = folder
        return _together(runs, words)


def _together(runs: dict[str, list[str]], words: list[str]) -> int:
    others = []
    *names, last = runs
    for name in names:
        said = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (closed at the program's end)
        started = subprocess.Popen(_pytest(runs[name], words), stdout=said, stderr=said)
        others.append((name, started, said))
    codes = [_ended(last, subprocess.Popen(_pytest(runs[last], words)))]
    for name, started, said in others:
        codes.append(_ended(name, started))
        said.seek(0)
        print(said.read(), flush=True)
    if set(codes) != {NOTHING_RUN}:
        codes = [code for code in codes if code != NOTHING_RUN]  # what was asked for stands in one of the runs
    return max(codes, key=abs)


def _ended(name: str, run: subprocess.Popen[Any]) -> int:
    """Wait for a run, and say what it has cost, with all OS processes that it has waited for; its exit code."""
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    print(f"{name}: {used.ru_utime + used.ru_stime:.0f} s of processor time", flush=True)
    return run.returncode


def _where(places: tuple[str, ...]) -> list[str]:
    """These folders and files, without what other runs have of them."""
    others = [name for one in APART for name in one if name not in places and name.partition("/")[0] in places]
    return [*(str(HERE / name) for name in places), *(f"--ignore={HERE / name}" for name in others)]


def _pytest(where: list[str], words: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *where, *words]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
