"""The definition of a flow: the class that people write, and what is made of it."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar, get_type_hints

from perdure.authoring.flow import drawing
from perdure.authoring.flow.answer import Answer
from perdure.authoring.flow.behaviour import Behaviour
from perdure.authoring.flow.check import check
from perdure.authoring.flow.event import FlowInit, Happened, sent
from perdure.authoring.flow.position import FlowPosition
from perdure.authoring.flow.reaction import Reaction
from perdure.authoring.machine import Machine, timer
from perdure.authoring.machine.definition import field
from perdure.errors import DefinitionError


class Flow(Machine):
    """The class of a declarative machine: states, events that change its fields, actions, and one table of rows.

    ::

        class Parcel(flow.Flow):
            courier: str = ""

            packed = flow.State(timeout=24 * 3600)
            sent = flow.State(terminal=True, result="courier")
            late = flow.State(terminal=True, failed=True)

            @flow.init
            def ordered(self) -> None:
                pass

            @flow.event
            def fetched(self, courier: str) -> None:
                self.courier = courier

            behaviour = flow.table(
                flow.on(ordered).to(packed),
                flow.on(fetched, in_=packed).to(sent),
                flow.on(packed.timed_out, in_=packed).to(late),
            )

    It is a machine, with a machine's fields, ``name``, ``version``, ``form``, ``deadline`` and ``idle``. Its processes
    have the attributes ``state`` and ``phase``, by which they are found; where one stands is in its field ``flow``, a
    :class:`flow.FlowPosition`. A class without ``@flow.init`` is a part that several flows may include, as their base.
    Raises DefinitionError.
    """

    __flow__: ClassVar[FlowKind]
    flow: FlowPosition = field(default_factory=FlowPosition)

    def __init_subclass__(cls, **settings: Any) -> None:
        if any(isinstance(one, FlowInit) for base in cls.__mro__ for one in vars(base).values()):
            cls.__flow__ = FlowKind(cls)
        elif getattr(cls, "__flow__", None) is None and settings:
            raise DefinitionError(f"{cls.__qualname__} has no method marked @flow.init, so it has no name or version.")
        super().__init_subclass__(**settings)

    @sent
    async def answer(self, id: str, code: str = "", reason: str = "", value: Any = None) -> str:
        """An answer to the request with this id: ``await handle.signal(Transfer.answer, id, "ACCP", value="R-17")``.

        As a call it is refused if no such request is open, or such an answer is unknown; as a signal it is then kept
        among the unexpected.
        """
        return await Reaction(self, self.__flow__.behaviour).answered(id, Answer(code, reason, value))

    @sent
    async def abort(self, why: str) -> str:
        """End the flow as failed, in the state ``aborted``: its times and requests count no more."""
        return await Reaction(self, self.__flow__.behaviour).abort(why)

    @timer
    async def due(self) -> None:
        """A time has come: a state or a request has timed out, or a request is sent again."""
        await Reaction(self, self.__flow__.behaviour).come_due()

    @classmethod
    def diagram(cls) -> str:
        """The flow as a Mermaid state diagram."""
        return drawing.diagram(cls.__flow__.behaviour)

    @classmethod
    def table(cls) -> str:
        """The flow's behaviour as a Markdown table."""
        return drawing.table(cls.__flow__.behaviour)

    @classmethod
    def scenario(cls) -> str:
        """A skeleton of tests, as Python text: one for each way to an end, with ``...`` where values belong."""
        return drawing.scenario(cls.__flow__.behaviour)

    @classmethod
    def _code(cls) -> list[FunctionType]:
        return cls.__flow__.behaviour.functions


RESERVED = {name: value for name, value in vars(Flow).items() if not name.startswith("__")}
"""What every flow has, and no flow may have otherwise."""


class FlowKind:
    """What the methods of a flow's class do, by its behaviour. Raises DefinitionError for one that cannot be meant."""

    def __init__(self, kind: type[Flow]) -> None:
        self.behaviour = Behaviour(kind)
        fields = {name for name in get_type_hints(kind) if name not in Flow.__annotations__}
        check(self.behaviour, RESERVED, fields)

    async def begin(self, flow: Flow) -> None:
        """Begin the flow, whose fields have their first values."""
        await Reaction(flow, self.behaviour).begin()

    async def react(self, flow: Flow, happened: Happened) -> str:
        """Let the flow react to an event from outside; returns the name of its state after that."""
        return await Reaction(flow, self.behaviour).react(happened)
