"""A child: a workflow that another one, its parent, starts; the parent may await its result like a step's."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, cast, get_args

from perdure import limits
from perdure.authoring.definitions import seconds
from perdure.authoring.undo import undo_of
from perdure.clock import Duration, microseconds
from perdure.errors import DefinitionError, ProcessCancelled, ProcessFailed, WorkflowMisuse
from perdure.kernel.child import depth
from perdure.kernel.declared_error import NOTHING, Declared
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.kernel.notice import refuse_reserved
from perdure.kernel.payload import encode_attributes
from perdure.kernel.process import DEFAULT_PRIORITY, Process
from perdure.turns.ask import OnParentEnd
from perdure.turns.current import turns

if TYPE_CHECKING:
    from perdure.authoring.step import Step
    from perdure.authoring.workflow import Workflow
    from perdure.turns.ask import Ask, Askable, AskedStep

P = ParamSpec("P")
R = TypeVar("R")


class Child(Generic[P, R]):
    """A workflow, to be called as a child: it can be asked for like a step, and its process runs where it is hosted."""

    noun: ClassVar[str] = "child"
    away: ClassVar[bool] = True
    raises: ClassVar[Declared] = NOTHING
    lasting: ClassVar[bool] = True  # it is asked to end and awaited, never just dropped
    keep_arguments: ClassVar[bool] = False  # its own row has them
    plain: ClassVar[bool] = False

    def __init__(
        self,
        workflow: Workflow[P, R],
        *,
        on_parent_end: OnParentEnd = "cancel",
        priority: int | None = None,
        deadline: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        undo: Step[..., Any] | None = None,
    ) -> None:
        self.workflow = workflow
        self.function = workflow.function
        self.name = workflow.name
        self.shape = workflow.shape
        if on_parent_end not in get_args(OnParentEnd):
            raise DefinitionError(
                f"on_parent_end={on_parent_end!r:.100} is unknown. Write 'cancel', 'terminate' or 'abandon'."
            )
        if priority is not None and (type(priority) is not int or not 0 <= priority <= 9):
            raise DefinitionError(f"priority={priority!r:.100} is not valid. Give a whole number from 0 (first) to 9.")
        self.on_parent_end: OnParentEnd = on_parent_end
        self.undo = undo_of(self, undo)
        self.priority = DEFAULT_PRIORITY if priority is None else priority
        limit = seconds("deadline", deadline, f"child {self.name!r}")
        self.deadline = workflow.deadline if limit is None else limit
        refuse_reserved(attributes or {})
        self.attributes = None if attributes is None else encode_attributes(attributes)

    def options(
        self,
        *,
        on_parent_end: OnParentEnd = "cancel",
        priority: int | None = None,
        deadline: Duration | None = None,
        attributes: Mapping[str, Any] | None = None,
        undo: Step[..., Any] | None = None,
    ) -> Child[P, R]:
        """The same child with settings for its process; raises DefinitionError.

        ``on_parent_end`` says what becomes of it if it still runs when its parent ends: it is asked to end
        (``"cancel"``), ended at once (``"terminate"``), or lives on (``"abandon"``).
        ``priority`` is from 0 (first) to 9, ``deadline`` is seconds from its start. ``undo`` is the step that undoes
        what the child has done, if its parent, or the saga around it, fails or is cancelled.
        """
        return Child(
            self.workflow,
            on_parent_end=on_parent_end,
            priority=priority,
            deadline=deadline,
            attributes=attributes,
            undo=undo,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Ask for the child and give its promise; raises WorkflowMisuse outside of a workflow."""
        loop = turns.get(get_ident())
        if loop is None:
            raise WorkflowMisuse(
                f"a child of {self.name!r} needs a parent, and no workflow is running here. "
                "Start a process of its own with engine.start(...)."
            )
        if depth(loop.process_id) >= limits.CHILD_DEPTH:
            raise WorkflowMisuse(
                f"this process stands {limits.CHILD_DEPTH:,} children below the first one. If a workflow starts itself "
                "as a child, let it end some time, or use continue_as_new(...)."
            )
        part = cast("AskedStep", self)  # a child stands in for a step wherever an ask is not run here
        return loop.ask(part, args, kwargs)  # type: ignore[return-value]  # a promise, as a step's

    def __repr__(self) -> str:
        return f"<child {self.name}>"

    def process(self, id: bytes, ask: Ask[Any], parent: Process, key: str, now: int) -> Process:
        """The row of the child's process."""
        return Process(
            id,
            self.name,
            None,
            ask.raw,
            parent=parent.id,
            code=self.workflow.version,
            priority=self.priority,
            attributes=self.attributes,
            deadline=None if self.deadline is None else now + microseconds(self.deadline),
        )

    def error(self, type: MessageType, failure: Failure) -> BaseException:
        """The error that the parent gets for a child that did not complete."""
        kind = ProcessCancelled if type is MessageType.CANCELLED else ProcessFailed
        verb = "was cancelled" if type is MessageType.CANCELLED else "failed"
        said = f"{failure.type}: {failure.message}" if failure.message else failure.type
        return kind(f"the child {self.name!r} {verb}: {said}", type=failure.type, detail=failure.message)


if TYPE_CHECKING:
    _fits: type[Askable] = Child
