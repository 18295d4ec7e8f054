"""What a step and a start cost, counted in bytecodes: a little more by every change is noticed on the day.

A count does not depend on the machine or on what else it does, as a time would. It differs between versions of the
interpreter. Who makes a step dearer for a good reason raises the number here, and says in the commit's message what it
buys.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.house.tree import ROOT

BUDGETS = {
    (3, 11): {"step": 2_220, "process": 5_210, "step with an object": 3_090},
    (3, 12): {"step": 2_065, "process": 4_840, "step with an object": 2_850},
    (3, 13): {"step": 2_075, "process": 4_855, "step with an object": 2_835},
}
"""Bytecodes of a step after a step, of a process with one step from its start to its result, and of a step that is
given an object with others in it and returns it.

A process asks whether it has a reply address at its first commit and at its end, whether its commit removes it, and at
its start and in its first turn whether a context came with it. A start asks whether it is debounced, and an instance
keeps how its run was opened: then it can be tried again. Eight bytecodes of a process are counted or not, as the
machine's clock has it.
"""
METRICS_SHARE = 0.055
"""What metrics may cost a process, as a share of all its bytecodes. What the database does is not among these: in time
it is less than half as much, see ``bench.monitored``."""
SECONDS = 90.0
"""A count takes two, and thirty beside a dozen other programs."""


@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.skipif(sys.version_info[:2] not in BUDGETS, reason="nobody has counted on this version of Python yet")
def test_a_step_and_a_start_cost_no_more_than_they_did() -> None:
    budget = BUDGETS[sys.version_info[:2]]
    words = [sys.executable, "-m", "tests.house.bytecodes"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    counts = json.loads(done.stdout)
    share = counts.pop("process with metrics") / counts["process"] - 1
    assert share <= METRICS_SHARE, f"metrics cost a process {share:.3f} of its bytecodes: what they hear has grown"
    for what, cost in counts.items():
        assert cost <= budget[what], f"a {what} costs {cost:.0f} bytecodes, {budget[what]} are allowed: see above"
        assert cost >= 0.93 * budget[what], f"a {what} costs only {cost:.0f} bytecodes by now: lower the number above"
