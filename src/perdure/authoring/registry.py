"""A registry: the workflows that an engine or worker knows, by name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import Any, NamedTuple

from perdure.authoring.definitions import origin_of
from perdure.authoring.fingerprint import fingerprints
from perdure.authoring.queue import Routing, queued_steps
from perdure.authoring.start import NO_OPTIONS, NamedWorkflow, Startable, StartOptions, WithOptions
from perdure.authoring.task import QueueWork
from perdure.authoring.workflow import DEFINED, Workflow
from perdure.errors import DefinitionError, InvalidInput, UnknownKind
from perdure.kernel.child import queue_kind
from perdure.kernel.names import check_name, near, no_such_method
from perdure.kernel.plain import shown
from perdure.kernel.worker import Offer

_BY_PATH: dict[str, str] = {}
"""The files of modules that were imported by their path: in another OS process their names may find nothing."""
_NO_STEPS = frozenset({type, FunctionType, BuiltinFunctionType, ModuleType, NoneType, str, int, float})
"""The types of most of what code names. Others are searched for the attributes of a step, which takes long."""


class LateWorkflow(NamedTuple):
    """A workflow whose module is imported when the first of its processes is claimed, or when somebody asks for it.

    ``load`` gives the workflow, which the registry knows from then on. The ``fingerprint`` of its code is known before.
    """

    load: Callable[[], Workflow[Any, Any]]
    fingerprint: str


class Registry:
    """The workflows known here. ``kinds`` holds them by name, ``sources`` the modules and files that define them.

    Of several versions of one workflow ``kinds`` has the one defined last, which starts processes; ``versions`` has
    all. ``queues`` holds the work of each queue served here, by the kind of its tasks. ``limited`` says that one of
    these has a limit of its own, or that there are ``limited_kinds``, of which it is known here that they have limits.
    ``late`` are hosted too, and join the others once they are loaded.
    """

    def __init__(self, *members: Workflow[Any, Any] | ModuleType | str) -> None:
        self.kinds: dict[str, Workflow[Any, Any]] = {}
        self.versions: dict[tuple[str, str], Workflow[Any, Any]] = {}
        self.late: dict[tuple[str, str], LateWorkflow] = {}
        self.queues: dict[str, QueueWork] = {}
        self.labels: tuple[str, ...] = ()
        self.limited_kinds: set[str] = set()
        self.limited = False
        self._queued: dict[str, Any] = {}
        self.sources: list[str] = []
        self._implied: set[tuple[str, str]] = set()
        for member in members:
            self.add(member)

    @classmethod
    def of_program(cls) -> Registry:
        """Every workflow that this program has defined so far; ``add`` may replace each by another of the same name."""
        registry = cls()
        for workflow in list(DEFINED.values()):
            registry._add(workflow)
        for step in queued_steps():
            registry._serve_queue_of(step)
        registry._implied = set(registry.versions)
        return registry

    @property
    def hosted(self) -> tuple[tuple[str, str], ...]:
        """The (kind, version) pairs of which this registry can run processes."""
        pairs = [pair for pair in self.versions if pair[0] in self.kinds]
        queues = ((kind, label) for kind in self.queues for label in ("", *self.labels))
        return (*dict.fromkeys((*pairs, *self.late)), *queues)

    def offer(self, schema: int) -> Offer:
        """The offer of a worker with this registry; ``schema`` is the newest one that its Perdure knows."""
        functions = {pair: one.function for pair, one in self.versions.items() if pair not in self.late}
        codes = dict(zip(functions, fingerprints(functions.values()), strict=True))
        codes |= {pair: late.fingerprint for pair, late in self.late.items()}
        places = {pair: _plain(origin_of(function)) for pair, function in functions.items()}
        origins = {pair: place for pair, place in places.items() if place not in ("", pair[1])}
        return Offer(frozenset(self.hosted), codes, schema, origins)

    def note_limits(self, kind: str) -> None:
        """Remember that a kind has limits: no worker begins a process of it before the store gives it a place."""
        self.limited_kinds.add(kind)
        self.limited = True

    def serve(self, queue: str, at_most: int | None = None) -> QueueWork:
        """Run the steps that wait in this queue, so many at once. Their code must be imported. Raises InvalidKey."""
        name = check_name(queue, "the name of the queue")
        if at_most is not None and (type(at_most) is not int or at_most < 1):
            raise InvalidInput(f"queue {name!r} cannot run {shown(at_most)} at once. Give a whole number from 1.")
        kind = queue_kind(name)
        work = self.queues.get(kind) or self.queues.setdefault(kind, QueueWork(name, self._queued))
        work.at_most = at_most or work.at_most
        self.limited = self.limited or work.at_most is not None
        return work

    def serve_only(self, queues: Iterable[str] | Mapping[str, int | None] | None, labels: Iterable[str] = ()) -> None:
        """Serve these queues and no others (None: those known so far), as a worker with these labels.

        A mapping says of each queue how many of its tasks may run here at once. Raises InvalidKey, InvalidInput.
        """
        self.labels = tuple(check_name(label, "a label") for label in labels)
        if queues is not None:
            self.queues = {}
            self.limited = bool(self.limited_kinds)
            for queue in queues:
                self.serve(queue, queues[queue] if isinstance(queues, Mapping) else None)

    def _add_queued(self, member: Any) -> None:
        known = self._queued.setdefault(member.name, member)
        if known is not member:
            raise DefinitionError(
                f"two queued steps are called {member.name!r}: {_where(known)} and {_where(member)}. "
                "Give one of them another name with @step(name=...)."
            )
        self._serve_queue_of(member)

    def _serve_queue_of(self, member: Any) -> None:
        self.serve(member.routing.queue)
        self._note_source(member.function)

    def add(self, member: Workflow[Any, Any] | ModuleType | str) -> None:
        """Add a workflow with the queues of its steps, all that a module defines, or a module by name.

        Raises DefinitionError.
        """
        if isinstance(member, str):
            self.load(member)
        elif isinstance(member, ModuleType):
            self._add_all(vars(member).values(), f"module {member.__name__!r}")
        elif (workflow := workflow_of(member)) is not None:
            self._add(workflow)
            for step in queued_steps_in(workflow):
                self._serve_queue_of(step)
        else:
            raise DefinitionError(f"{member!r:.200} is not a workflow. Add a function marked @workflow, or a module.")

    def load(self, source: str) -> None:
        """Import ``shop``, ``shop:orders`` (one name of it) or ``path/shop.py``, and add what it defines."""
        name, _, part = source.partition(":") if not source.endswith(".py") else (source, "", "")
        module = module_of(name)
        if not part:
            self.add(module)
            return
        found: Any = module
        for attribute in part.split("."):
            try:
                found = getattr(found, attribute)
            except AttributeError:
                close = near(attribute, vars(found) if hasattr(found, "__dict__") else ())
                raise DefinitionError(f"module {name!r} has no {part!r}.{close}") from None
        if isinstance(found, Registry):
            self._add_all(found.versions.values(), source)
        elif isinstance(found, list | tuple | set | dict):
            self._add_all(found.values() if isinstance(found, dict) else found, source)
        else:
            self.add(found)

    def code_of(self, kind: str, version: str) -> Workflow[Any, Any]:
        """The workflow that runs processes of a hosted kind and version, or a queue's tasks; raises KeyError."""
        return self.versions.get((kind, version)) or self.queues.get(kind) or self.late[kind, version].load()

    def find(self, kind: str | Workflow[Any, Any]) -> Workflow[Any, Any]:
        """The workflow of that name, or the given one once it is known; raises UnknownKind with near matches."""
        if isinstance(kind, Workflow):
            if self.versions.get((kind.name, kind.version)) is not kind:
                self._add(kind)
            return kind
        if kind in self.kinds:
            self._only(kind)
            return self.kinds[kind]
        close = near(kind, self.kinds)
        raise UnknownKind(
            f"no workflow {kind!r} is known here.{close} Import its module, and give it to the engine or worker."
        )

    def _only(self, kind: str) -> None:
        """Raise UnknownKind if several functions have that name by default: the name alone does not say which."""
        named = (one for one in self.versions.values() if one.name == kind)
        origins = sorted({one.version for one in named if one.version and one.version == origin_of(one.function)})
        if len(origins) > 1:
            raise UnknownKind(several(kind, origins))

    def startable(
        self, kind: str | Startable[Any, Any], *, at_word: bool = False
    ) -> tuple[Workflow[Any, Any] | NamedWorkflow, StartOptions]:
        """What is to be started, and the options of that start; raises UnknownKind for a name not known here.

        With ``at_word``, a NamedWorkflow without a version that is not known here is taken as one of version "".
        """
        bare, options = (kind.workflow, kind.settings) if isinstance(kind, WithOptions) else (kind, NO_OPTIONS)
        if isinstance(bare, NamedWorkflow):
            if bare.newest and (bare.name in self.kinds or not at_word):
                return self.find(bare.name), options
            return self.versions.get((bare.name, bare.version)) or bare, options
        if not isinstance(bare, str | Workflow):
            raise DefinitionError(_not_startable(bare))
        return self.find(bare), options

    def check_letter(self, kind: str, name: str) -> None:
        """Raise InvalidInput if every class known here for the machines of that kind lacks a method of that name."""
        newest = self.kinds.get(kind)
        if newest is None or newest.machine is None or name in newest.machine.letters:
            return
        machines = [one.machine for one in self.versions.values() if one.name == kind]
        letters = [] if None in machines else [letter for one in machines for letter in one.letters]
        if letters and name not in letters:
            raise InvalidInput(no_such_method(kind, name, letters))

    def _add_all(self, members: Iterable[Any], source: str) -> None:
        members = list(members)
        found = list(workflows_of(members))
        queued = list(queued_steps_of(members))
        if not found and not queued:
            raise DefinitionError(f"{source} defines no workflow. Mark an `async def` with @workflow.")
        for workflow in found:
            self._add(workflow)
        for step in queued:
            self._add_queued(step)

    def _add(self, workflow: Workflow[Any, Any]) -> None:
        if workflow.former is not None:
            self._add(workflow.former)
        pair = workflow.name, workflow.version
        known = self.versions.get(pair)
        if known is workflow:
            return
        if known is not None and pair not in self._implied:
            raise DefinitionError(
                f"two workflows are called {workflow.name!r}: {_where(known)} and {_where(workflow)}. "
                "Give one of them another name with @workflow(name=...), or a version of its own."
            )
        self._implied.discard(pair)
        workflow.check()  # again: functions defined below it are known now
        self.versions[pair] = workflow
        if workflow.limits is not None:
            self.note_limits(workflow.name)
        newest = self.kinds.get(workflow.name)
        if newest is None or newest is known or newest.number < workflow.number:
            self.kinds[workflow.name] = workflow
        self._note_source(workflow.function)

    def _note_source(self, function: Callable[..., Any]) -> None:
        source = source_of(function)
        if source not in self.sources:
            self.sources.append(source)


def several(kind: str, versions: Iterable[str]) -> str:
    """Why a name alone does not say what to start."""
    told = ", ".join(f"version={version!r}" for version in versions)
    return f"there are several versions of workflow {kind!r}. Say which one: NamedWorkflow({kind!r}, ...) with {told}."


def _not_startable(given: Any) -> str:
    """What a caller that wants to start this has probably meant, and what to write instead."""
    if inspect.iscoroutine(given):
        given.close()  # else the interpreter warns that it was never awaited
        name = given.__name__
        return f"{name}(...) is a call. Give the workflow and then its arguments: engine.start({name}, ...)."
    noun = getattr(given, "noun", "")
    if noun == "child":
        name = given.name
        return f"{name}.child is started by workflows only. Start the workflow itself: engine.start({name}, ...)."
    if noun:
        return f"{given.name} is a step. Call it in an `async def` that is marked with @workflow, and start that."
    if callable(given):
        name = getattr(given, "__qualname__", shown(given))
        return f"{name} is not a workflow. Mark it with @workflow, and make it an `async def` if it is none."
    return f"{shown(given)} is not a workflow. Give a workflow, or the name of one."


def workflows_of(members: Iterable[Any]) -> Iterable[Workflow[Any, Any]]:
    """The workflows among ``members``."""
    return (workflow for workflow in map(workflow_of, members) if workflow is not None)


def workflow_of(member: Any) -> Workflow[Any, Any] | None:
    """The workflow that something is, or that runs the machines of a class; None if it is neither."""
    if isinstance(member, type):
        member = vars(member).get("__machine__")
    return member if isinstance(member, Workflow) else None


def queued_steps_in(workflow: Workflow[Any, Any]) -> Iterable[Any]:
    """The queued steps that a workflow's code names, and their undos."""
    for value in workflow.check():
        if type(value) not in _NO_STEPS:
            undo = inspect.getattr_static(value, "undo", None)
            yield from queued_steps_of((value, getattr(undo, "step", None)))


def queued_steps_of(members: Iterable[Any]) -> Iterable[Any]:
    """The steps among ``members`` that wait in a queue."""
    return (
        member
        for member in members
        if type(member) not in _NO_STEPS and isinstance(inspect.getattr_static(member, "routing", None), Routing)
    )


def module_of(name: str) -> ModuleType:
    """Import a module by its name or by the path of its file; raises DefinitionError."""
    if name.endswith(".py") or "/" in name:
        return _file_module(Path(name))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise DefinitionError(
                f"there is no module {name!r}. Run from the directory that holds it, or install it; "
                "a file is named by its path, like ./shop.py."
            ) from None
        raise DefinitionError(f"module {name!r} does not import: {error}. Install what it needs.") from error
    except (Exception, SystemExit) as error:
        raise _fails_at_import(f"module {name!r}", error) from error


def _fails_at_import(what: str, error: BaseException) -> DefinitionError:
    text = str(error).rstrip(".")
    return DefinitionError(f"{what} does not import: {type(error).__name__}: {text}. Correct it first.")


def _file_module(path: Path) -> ModuleType:
    full = path.resolve()
    if not full.is_file():
        raise DefinitionError(f"there is no file {path}. Give the path of a Python file, or the name of a module.")
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file) == full and module.__name__ != "__main__":
            return module
    spec = importlib.util.spec_from_file_location(full.stem, full)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(full.stem, module)
    _BY_PATH[full.stem] = str(full)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(full.stem, None)
        raise _fails_at_import(str(path), error) from error
    return module


def source_of(function: Callable[..., Any]) -> str:
    """What to import in another OS process to find a function: its module, or the file of the program itself."""
    name = function.__module__
    if name != "__main__":
        return _BY_PATH.get(name, name)
    if (spec := sys.modules[name].__spec__) is not None:  # it was run as `python -m shop.orders`
        return spec.name
    return str(Path(function.__code__.co_filename).resolve())


def _plain(origin: str) -> str:
    """An origin that can be stored: the name of a folder, and so of a module, may hold bytes that are no text."""
    return origin.encode(errors="backslashreplace").decode()


def _where(member: Any) -> str:
    code = member.function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
