"""The quick tests: kernel, authoring, and runtime and conformance on SQLite alone, in runs side by side.

``make quick`` is for while one works: it is to end within a minute on two cores, and needs no PostgreSQL. As a plugin
of pytest this module leaves out each test that does, and each file that mostly starts OS processes or waits. Of the
conformance suite each sentence is tried in a file or in memory, and properties with fewer examples.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.in_turn import in_turn
from tests.side_by_side import HERE, together

SLOW = (
    "runtime/test_alone.py",
    "runtime/test_attempts.py",
    "runtime/test_cells.py",
    "runtime/test_commands_everywhere.py",
    "runtime/test_damaged_rows.py",
    "runtime/test_fork_server.py",
    "runtime/test_forks.py",
    "runtime/test_inbox.py",
    "runtime/test_large_families.py",
    "runtime/test_load.py",
    "runtime/test_namesakes.py",
    "runtime/test_no_imports.py",
    "runtime/test_queue_limits.py",
    "runtime/test_refused_cells.py",
    "runtime/test_renewal.py",
    "runtime/test_rules.py",
    "runtime/test_saga.py",
    "runtime/test_shortages.py",
    "runtime/test_strange_folder.py",
    "runtime/test_suspects_in_queues.py",
    "runtime/test_versions.py",
    "runtime/test_watchdog.py",
)
"""What takes longest; `make test` has it."""
RUNTIME = [
    path.relative_to(HERE).as_posix()
    for path in sorted((HERE / "runtime").rglob("test_*.py"))
    if path.relative_to(HERE).as_posix() not in SLOW
]
PARTS = 5
"""Tests of runtime mostly wait: each part of them waits beside the others."""
RUNS = {
    "conformance": ("store/test_conformance.py",),
    "kernel and authoring": ("kernel", "authoring"),
    **{f"part {part + 1} of {PARTS} of runtime": RUNTIME[part::PARTS] for part in range(PARTS)},
}
EXAMPLES = "PERDURE_EXAMPLES"
"""The environment variable that says how many examples of each property of the kernel are tried."""
SERVERS = ("postgres", "pooled")


def needs_a_server(names: list[str], parameters: list[Any]) -> bool:
    """Whether a test uses PostgreSQL, by its fixtures or by what it is called with."""
    asked = [*names, *(one for one in parameters if isinstance(one, str))]
    return "shared_server" in asked or any(server in one for server in SERVERS for one in asked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need PostgreSQL, and one of each pair of twins on SQLite."""
    kept, left = [], []
    for item in items:
        calls = getattr(item, "callspec", None)
        parameters = list(calls.params.values()) if calls else []
        (left if needs_a_server(getattr(item, "fixturenames", []), parameters) else kept).append(item)
    items[:], twins = in_turn(kept)
    config.hook.pytest_deselected(items=[*left, *twins])


def main(words: list[str]) -> int:
    """Run them with these arguments for pytest; the answer is the worst exit code."""
    runs = {name: [str(HERE / place) for place in places] for name, places in RUNS.items()}
    os.environ.setdefault(EXAMPLES, "25")
    return together(runs, ["-p", "tests.quick", "--quiet", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
