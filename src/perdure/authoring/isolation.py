"""The isolation of a hard step: how a child OS process finds the step, and how much memory it may take."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from perdure.authoring.registry import source_of
from perdure.errors import DefinitionError

if TYPE_CHECKING:
    from perdure.authoring.step import Step

_SIZE = r"(\d+(?:\.\d+)?) ?(KiB|MiB|GiB)"
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FEWEST_BYTES = 2**20

HARD: dict[str, Step[Any, Any]] = {}
"""Every hard step that this program has defined, by the key that it has in every OS process."""

entering = False
"""Whether this OS process is a cell that is importing the application."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Where a hard step is found (import ``source``, then look for ``key``), and its limit of ``memory`` in bytes."""

    source: str
    key: str
    memory: int | None


def confinement(
    step: Step[Any, Any], function: FunctionType, hard: Any = False, memory: Any = None
) -> Isolation | None:
    """The isolation that the settings ``hard`` and ``memory`` ask for, or None; raises DefinitionError."""
    if not isinstance(hard, bool):
        raise DefinitionError(f"{step} has hard={hard!r:.100}. Write hard=True, or leave it out.")
    if not hard:
        if memory is not None:
            raise DefinitionError(f"{step} has a limit of memory, which only a hard step can have. Add hard=True.")
        return None
    if "<locals>" in function.__qualname__:
        raise DefinitionError(
            f"{step} is hard and stands inside a function, where no other OS process can find it. "
            "Move it to the top of its module."
        )
    # The path names the module alike in every OS process, also where one of them runs it as __main__.
    key = f"{Path(function.__code__.co_filename).resolve()}:{function.__qualname__}:{step.name}"
    found = Isolation(source_of(function), key, _size(step, memory))
    HARD[key] = step
    return found


def _size(step: Step[Any, Any], memory: Any) -> int | None:
    if memory is None:
        return None
    found = re.fullmatch(_SIZE, memory) if isinstance(memory, str) else None
    if found is not None:
        size = int(float(found[1]) * _UNITS[found[2]])
    elif type(memory) is int:
        size = memory
    else:
        size = 0
    if size < _FEWEST_BYTES:
        raise DefinitionError(
            f'{step} has memory={memory!r:.100}. Give bytes, or a text like "512MiB" or "1.5GiB": 1 MiB at least.'
        )
    if not sys.platform.startswith("linux"):
        raise DefinitionError(
            f"{step} has a limit of memory, which {sys.platform} cannot keep. Leave memory out, or run it on Linux."
        )
    return size
