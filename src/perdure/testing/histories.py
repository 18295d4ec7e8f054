"""Exported histories in tests: replayed against the code of today, so that a change that does not fit is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.authoring.workflow import Workflow
from perdure.kernel import archive
from perdure.kernel.names import id_text
from perdure.kernel.policy import Policies
from perdure.rehearsal.rehearser import Rehearser, of_files, of_lines
from perdure.rehearsal.report import Rehearsal
from perdure.retention.archive_file import files, opened

Code = Workflow[Any, Any] | ModuleType | str
"""What a history is replayed against: a workflow, a machine's class, a module, or the name of a module."""


class History:
    """One process of an export. ``name`` says which: its file, and its kind with its key or ``id``."""

    def __init__(self, line: bytes, number: int = 1, file: str = "") -> None:
        found = archive.read(line, number).process
        self.id = id_text(found.id)
        self.name = ":".join(filter(None, (file, found.kind, found.key or self.id)))
        self._line = line

    def __repr__(self) -> str:
        """Its name, for the report of a test."""
        return f"<History {self.name}>"

    def rehearse(self, *code: Code, version: str | None = None) -> Rehearsal:
        """Replay it against workflows, machines or modules, or those of this program; see :func:`rehearse`."""
        return of_lines([self._line], _rehearser(code, version))


def histories(path: str | Path) -> Iterator[History]:
    """The processes of a file that ``perdure export`` has written, or of a folder of archives.

    Of a folder these are the files ``*.jsonl`` and ``*.jsonl.gz``, the newest first by their names; of a process that
    stands in several, the newest line counts. Raises InvalidInput if there are none, or for a damaged line.
    """
    seen: set[str] = set()
    for file in files(path):
        with opened(file) as lines:
            for number, line in enumerate(lines, 1):
                one = History(line, number, file.name)
                if one.id not in seen:
                    seen.add(one.id)
                    yield one


def rehearse(path: str | Path, *code: Code, version: str | None = None) -> Rehearsal:
    """Replay all exported processes of a file or folder against the code of today; Temporal calls this a replayer.

    ::

        testing.rehearse("histories", shop).check()

    ``code`` are workflows, machines or modules; without any, all that this program has defined counts. With a
    ``version`` the code of that version is taken, whichever a process has. Raises InvalidInput, DefinitionError.
    """
    return of_files(path, _rehearser(code, version))


def _rehearser(code: tuple[Code, ...], version: str | None) -> Rehearser:
    registry = Registry(*code) if code else Registry.of_program()
    return Rehearser(registry, StepPolicies(Policies()), version)
