"""The library's own workflows: what runs behind a schedule, an operation, a check run and a webhook.

Every worker hosts them, and imports the module of one when it first has a process of it in hand: most never do.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from perdure.authoring.registry import LateWorkflow, Registry
from perdure.authoring.workflow import Workflow
from perdure.kernel.call_shape import CallShape
from perdure.kernel.names import LIBRARY

_DEFINED_IN = {
    f"{LIBRARY}schedule": ("schedule.machine", "ScheduleMachine"),
    f"{LIBRARY}operation": ("operation.machine", "OperationMachine"),
    f"{LIBRARY}check": ("check.machine", "CheckMachine"),
    f"{LIBRARY}webhook": ("webhook", "webhook"),
}
"""Where each kind is defined: a module beside this one, and a name in it.

None of them has a version: each goes on with what an older Perdure has recorded.
"""


def host_library(registry: Registry) -> Registry:
    """The registry, which hosts all of them from now on."""
    for kind in _DEFINED_IN:
        registry.late[kind, ""] = LateWorkflow(partial(_loaded, registry, kind), _fingerprint(kind))
    return registry


def with_library_kind(registry: Registry, kind: str) -> Registry:
    """The registry, which knows that kind from now on if it is one of the library's own."""
    if kind in _DEFINED_IN and kind not in registry.kinds:
        module, name = _DEFINED_IN[kind]
        registry.add(getattr(import_module(f"perdure.authoring.{module}"), name))
    return registry


def _loaded(registry: Registry, kind: str) -> Workflow[Any, Any]:
    """The workflow of a kind, or what stands for it if its module is not imported."""
    try:
        return with_library_kind(registry, kind).versions[kind, ""]
    except Exception as error:  # for want of a descriptor, or the installation is damaged
        return _Unloaded(kind, error)


class _Unloaded(Workflow[Any, Any]):
    """What a worker has in hand of a workflow that it could not load: a process of it cannot begin here.

    Such a process is treated like any that cannot be read here: for want of a descriptor it is left to others for a
    while, and for any other reason a person must see it.
    """

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.version = name, ""
        self.idle = self.deadline = None
        self._error = error

    @property
    def shape(self) -> CallShape:  # type: ignore[override]  # of any other workflow it is an attribute
        """Raises why it was not loaded."""
        raise self._error


def _fingerprint(kind: str) -> str:
    """The fingerprint of a module that is not imported: that of its file."""
    file = Path(__file__).parent.joinpath(*_DEFINED_IN[kind][0].split(".")).with_suffix(".py")
    return blake2b(file.read_bytes(), digest_size=8).hexdigest()
