"""A workflow: an ordinary ``async def`` whose processes survive crashes, because its steps are recorded."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from inspect import iscoroutinefunction
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, overload
from weakref import WeakValueDictionary

from perdure.authoring.child import Child
from perdure.authoring.definitions import name_of, origin_of, plain_function, seconds
from perdure.authoring.review import review
from perdure.authoring.start import Startable
from perdure.clock import Duration
from perdure.errors import DefinitionError, InvalidInput, InvalidKey
from perdure.kernel.call_shape import CallShape
from perdure.kernel.child import is_task
from perdure.kernel.failure import Failure
from perdure.kernel.kind import Limits
from perdure.kernel.names import check_name
from perdure.kernel.retry import Retry
from perdure.kernel.workflow_retry import of_a_workflow
from perdure.turns.sandbox import static_check
from perdure.turns.sandbox.mentions import Meanings, is_own
from perdure.turns.verbs import new_uuid, now, process_id, random_source, receive, set_state, tell

if TYPE_CHECKING:
    from perdure.authoring.schedule.definition import Schedule

__all__ = ["Workflow", "new_uuid", "now", "process_id", "random_source", "receive", "set_state", "tell", "workflow"]

P = ParamSpec("P")
R = TypeVar("R")

DEFINED: WeakValueDictionary[tuple[str, str], Workflow[Any, Any]] = WeakValueDictionary()
"""Every workflow of this program by name and version, in the order in which they were defined.

An engine hosts all of these by default.
"""

_order = count(1)


class Workflow(Startable[P, R]):
    """A function marked with :func:`workflow`. ``name`` is the kind of its processes.

    ``child`` is the workflow to be called as a child of another one: ``await order.child("A-17")``.
    ``version`` is the one given, or else where the function is defined (``shop.orders:order``); it is empty if the name
    was given, or if no other OS process would find the function there. A process runs only with code of its version.
    ``deadline`` and ``idle`` are seconds, or None for the defaults: the time a process may take, and how long an
    unchanged one waits for a check. Of two versions, that with the higher ``number`` was defined later and is started.
    """

    machine: ClassVar[Any] = None
    """What runs the methods of a machine; nothing for a plain workflow."""
    schedule: Schedule | None = None
    """By which a worker that hosts the workflow starts it again and again."""
    retry: Retry | None = None
    """By which a process whose code has failed begins again, in a new run."""
    limits: Limits | None = None
    """How many of its processes run at once, and how many start in a time; its workers put them in force."""
    done_in: Mapping[str, Mapping[str, Any]] = {}
    """Of a flow: its states, each with the actions and requests that are done in it, by name."""
    timed_in: Mapping[str, Mapping[str, Any]] = {}
    """Of a flow: its states, each with itself and the stretches that begin in it, by name."""
    _read: Meanings | None = None
    """What the names in its code meant when it was looked at."""
    by_state = False
    """Whether how its steps run depends on the state in which they are asked for, also without policies."""

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        *,
        name: str | None = None,
        version: str = "",
        deadline: Duration | None = None,
        idle: Duration | None = None,
        schedule: Schedule | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.function = plain_function(function, "workflow")
        self.name = name_of(self.function, name, "workflow")
        if not iscoroutinefunction(self.function):
            raise DefinitionError(f"{self} is not a coroutine function. Declare it with `async def`.")
        self.shape = CallShape(self.function)
        self.schedule = schedule
        if schedule is not None:
            _check_schedule(self, schedule)
        self.retry = None if retry is None else of_a_workflow(retry, f"{self}")
        update_wrapper(self, self.function)
        self._define(version or (origin_of(self.function) if name is None else ""), deadline, idle)

    def _define(self, version: str, deadline: Duration | None, idle: Duration | None) -> None:
        """Check the code and the settings, and let every engine of this program know it."""
        if is_task(self.name):
            raise DefinitionError(f"{self} has a name that begins with @, which is a queue's. Choose another one.")
        self.version = _version(version, self.name)
        self.deadline = seconds("deadline", deadline, f"{self}")
        self.idle = seconds("idle", idle, f"{self}")
        self.child: Child[P, R] = Child(self)
        if not is_own(self.function):
            self.check()
        self.number = next(_order)
        self.former = _former(self)
        DEFINED.pop((self.name, self.version), None)
        DEFINED[self.name, self.version] = self

    def limit(self, limits: Limits) -> Workflow[P, R]:
        """Declare how many of its processes run at once, and start in a time; raises DefinitionError."""
        if not isinstance(limits, Limits):
            raise DefinitionError(f"{self} has limits={limits!r:.100}. Write limits=Limits(running=10).")
        self.limits = limits
        return self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself: in a workflow as a part of it, elsewhere (in a unit test) as it is."""
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    @property
    def functions(self) -> tuple[FunctionType, ...]:
        """All functions that are its code, without those that they name."""
        return (self.function,)

    def failure(self, error: BaseException) -> Failure:
        """What is recorded when a process ends with this error."""
        return Failure.of(error)

    def check(self) -> Sequence[Any]:
        """Look at its code, as far as it is defined by now; raises DefinitionError if it reads the clock.

        Code that was looked at already, and whose names mean what they did, is not looked at again: every engine asks
        for this. Perdure's own is looked at by its tests. Returns all that the code names.
        """
        if self._read is None or not self._read.stand():
            read = Meanings()
            for function in self.functions:
                found = static_check.check(function, f"{self}", read)
                if not is_own(function):
                    review(found)
            self._read = read
        return self._read.values


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "",
    deadline: Duration | None = None,
    idle: Duration | None = None,
    schedule: Schedule | None = None,
    retry: Retry | None = None,
    limits: Limits | None = None,
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...
def workflow(function: Callable[..., Any] | None = None, /, limits: Limits | None = None, **settings: Any) -> Any:
    """Mark an ``async def`` as a workflow, whose calls can be started as durable processes; raises DefinitionError.

    With a ``schedule`` the workers that host it start it again and again, as
    ``engine.schedules.put(name, schedule, workflow)`` would with the workflow's own name.

    With a ``retry`` a process whose code ends with an error begins again, with the same input, in a new run of its own,
    until the attempts are used up; only then it has failed.

    With ``limits`` no more of its processes than that run at once, or start in a time, over all workers: see
    :class:`Limits`. They are in force once a worker that hosts it has started, unless a person has set others.
    """
    if function is not None:
        return Workflow(function)
    if limits is None:
        return lambda decorated: Workflow(decorated, **settings)
    return lambda decorated: Workflow(decorated, **settings).limit(limits)


def _check_schedule(workflow: Workflow[Any, Any], schedule: Any) -> None:
    from perdure.authoring.schedule.definition import TIME_PARAMETER, Schedule, moment

    if not isinstance(schedule, Schedule):
        raise DefinitionError(f"{workflow} has schedule={schedule!r:.100}. Write schedule=Schedule('0 3 * * *').")
    given = {TIME_PARAMETER: moment(0)} if workflow.shape.leaves_out(TIME_PARAMETER, (), {}) else {}
    try:
        workflow.shape.encode((), given)
    except InvalidInput as error:
        raise DefinitionError(
            f"{workflow} has a schedule, which starts it without arguments: {error} Give its parameters defaults, or "
            "use engine.schedules.put(name, schedule, workflow, ...)."
        ) from None


def _former(workflow: Workflow[Any, Any]) -> Workflow[Any, Any] | None:
    """The other version that the same name of the same module stood for until now: its processes stay hosted."""
    name, module = workflow.function.__qualname__, workflow.function.__module__
    if "<locals>" in name:
        return None
    others = (
        other
        for (kind, version), other in list(DEFINED.items())
        if kind == workflow.name and version != workflow.version
    )
    same = (o for o in others if (o.function.__qualname__, o.function.__module__) == (name, module))
    return max(same, key=lambda other: other.number, default=None)


def _version(version: str, name: str) -> str:
    try:
        return check_name(version, f"the version of workflow {name!r}") if version else ""
    except InvalidKey as error:
        raise DefinitionError(str(error)) from None
