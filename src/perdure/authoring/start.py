"""What a process can be started from: a workflow, or its name where its code is not at hand; either with options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from perdure.clock import Duration
from perdure.errors import InvalidInput
from perdure.kernel import payload
from perdure.kernel.names import check_name
from perdure.kernel.plain import shown
from perdure.kernel.process import DEFAULT_PRIORITY

P = ParamSpec("P")
R = TypeVar("R")

FirstSignal: TypeAlias = tuple[str, object] | tuple[str, object, str]
"""A signal that comes with a start: its name, its value, and its own key, if it has one."""


class Named(Protocol):
    """A handle of a process, as far as it is needed to reply to it."""

    @property
    def id(self) -> str:
        """The id of the process."""


ReplyAddress: TypeAlias = Named | bytes | str
"""Who gets the notices of a process: another process, by a handle or its id, or the URL of a webhook."""


class StartOptions(Struct, frozen=True):
    """The options of one start, as :meth:`Startable.options` takes them."""

    key: str | None = None
    deadline: Duration | None = None
    attributes: Mapping[str, Any] | None = None
    signal: FirstSignal | None = None
    delay: Duration | None = None
    priority: int = DEFAULT_PRIORITY
    reply_to: ReplyAddress | None = None
    debounce: Duration | None = None
    debounce_longest: Duration | None = None
    context: Mapping[str, Any] | None = None


NO_OPTIONS = StartOptions()


class Startable(Generic[P, R]):
    """What ``engine.start`` takes before the workflow's own arguments: ``P`` are those, ``R`` is its result."""

    def options(
        self,
        *,
        key: str | None = None,
        deadline: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        signal: FirstSignal | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        reply_to: ReplyAddress | None = None,
        debounce: Duration | None = None,
        debounce_longest: Duration | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> WithOptions[P, R]:
        """The same with options for one start: ``engine.start(order.options(key="A-17"), 1299)``.

        ``key`` is the caller's own id, unique per kind: a second start with the same input answers the same process
        with ``created`` false; with another input it raises KeyConflict. ``deadline`` in seconds from now ends the
        process as failed if it is not finished by then. ``attributes`` can be searched for. ``signal`` is a name and a
        value, and a key of its own as a third: it is stored with a new process in one transaction, or sent to the one
        that has the key; the handle says what became of it (``sent``). ``delay`` in seconds from now is when the code
        begins: a signal, a call or a cancellation that arrives earlier starts it at once. ``priority`` is from 0
        (first) to 9 (default: 4): of those that wait for a worker the first ones are taken first. ``reply_to`` is who
        is told what becomes of the process, by a :class:`Notice` when it has begun and at each change of its status:
        another process (a handle or an id), which receives signals named ``notice``, or an http or https URL.
        ``context`` is a small mapping that the engine does not look into (a tenant, a trace): it travels on into steps,
        queued steps, children and signals, where ``perdure.context()`` gives it.

        ``debounce`` lets the code begin in so many seconds, and a start with the same key before that replaces its
        arguments and options and puts it off by so many seconds again; but by no more than ``debounce_longest`` seconds
        after the first start. Once it has begun, its key is free: the next start begins the next process. Raises
        InvalidInput for another priority, or for a ``debounce_longest`` alone.
        """
        if debounce_longest is not None and debounce is None:
            raise InvalidInput("debounce_longest= bounds a debounce=, and there is none. Give both.")
        first = DEFAULT_PRIORITY if priority is None else checked_priority(priority)
        return WithOptions(
            self,
            StartOptions(
                key, deadline, attributes, signal, delay, first, reply_to, debounce, debounce_longest, context
            ),
        )


def checked_priority(priority: Any) -> int:
    """A priority; raises InvalidInput unless it is a whole number from 0 to 9."""
    if type(priority) is not int or not 0 <= priority <= 9:
        raise InvalidInput(f"priority={shown(priority)} is not valid. Give a whole number from 0 (first) to 9.")
    return priority


class NamedWorkflow(Startable[..., Any]):
    """A workflow by its name, and by its version if that is given.

    Without a version it is the newest that is known here, or else the one that live workers host; if they host none, it
    has no version. If it is not known here, its arguments are not checked. Then give them by position: arguments given
    by name here and by position elsewhere count as another input.
    """

    deadline: float | None = None
    limits: None = None
    """Those of its workflow are declared by the workers that host it."""

    def __init__(self, name: str, *, version: str | None = None) -> None:
        self.name = check_name(name, "the name of a workflow")
        self.newest = version is None
        self.version = check_name(version, f"the version of workflow {name!r}") if version else ""
        self.shape = self

    @property
    def result_type(self) -> Any:
        """What its result is decoded to."""
        return Any

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of a call, in the form of :class:`CallShape`; raises PayloadError if it is not JSON."""
        call: Any = {**({"": list(args)} if args else {}), **kwargs} if kwargs else list(args)
        return payload.encode(call, what=f"the arguments of {self.name}")

    def __repr__(self) -> str:
        return f"<workflow {self.name}, by name>"


def split(workflow: Startable[P, R]) -> tuple[Startable[P, R], StartOptions]:
    """The workflow itself, and the options of this start."""
    return (workflow.workflow, workflow.settings) if isinstance(workflow, WithOptions) else (workflow, NO_OPTIONS)


class WithOptions(Startable[P, R]):
    """A workflow with the options of one start; to call ``options`` once more replaces them all."""

    def __init__(self, workflow: Startable[P, R], settings: StartOptions) -> None:
        self.workflow: Startable[P, R] = workflow.workflow if isinstance(workflow, WithOptions) else workflow
        self.settings = settings

    def __repr__(self) -> str:
        return f"<{self.workflow!r} with options>"
