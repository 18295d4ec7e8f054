"""The definition of a flow: the class that people write, and what is made of it."""

from __future__ import annotations

from types import FunctionType
from typing import Any, ClassVar, get_type_hints

from perdure.authoring.flow import drawing
from perdure.authoring.flow.answer import Answer
from perdure.authoring.flow.behaviour import Behaviour
from perdure.authoring.flow.check import check
from perdure.authoring.flow.event import FlowInit, sent
from perdure.authoring.flow.position import FlowPosition
from perdure.authoring.flow.reaction import Reaction
from perdure.authoring.machine import Machine, timer
from perdure.authoring.machine.definition import field
from perdure.authoring.method import InitMethod
from perdure.clock import Duration, in_seconds
from perdure.errors import DefinitionError
from perdure.kernel.policy import check_revival_delay


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

    It is a machine, with a machine's fields, ``name``, ``version``, ``form``, ``deadline`` and ``idle``;
    ``revival_delay`` is that of all states which have none (see :class:`flow.State`). Its processes
    have the attributes ``state`` and ``phase``, by which they are found; where one stands is in its field ``flow``, a
    :class:`flow.FlowPosition`. A class without ``@flow.init`` is a part that several flows may include, as their base.
    Raises DefinitionError.
    """

    __flow__: ClassVar[Behaviour]
    flow: FlowPosition = field(default_factory=FlowPosition)

    def __init_subclass__(cls, *, revival_delay: Duration | None = None, **settings: Any) -> None:
        beginnings = [one for base in cls.__mro__ for one in vars(base).values() if isinstance(one, InitMethod)]
        if any(not isinstance(one, FlowInit) for one in beginnings):
            raise DefinitionError(f"{cls.__qualname__} has a method marked @machine.init. Mark it @flow.init.")
        if beginnings:
            delay: float | None = in_seconds(revival_delay)
            check_revival_delay(delay, cls.__qualname__)
            cls.__flow__ = Behaviour(cls, delay)
            fields = {name for name in get_type_hints(cls) if name not in Flow.__annotations__}
            check(cls.__flow__, RESERVED, fields)
        elif (settings or revival_delay is not None) and not hasattr(cls, "__flow__"):
            raise DefinitionError(
                f"{cls.__qualname__} has no method marked @flow.init, so it has no name, version or revival_delay."
            )
        super().__init_subclass__(**settings)
        if beginnings:
            cls.__machine__.done_in = cls.__flow__.done_in
            cls.__machine__.timed_in = cls.__flow__.timed_in
            cls.__machine__.by_state = cls.__flow__.by_state

    @sent
    async def answer(self, id: str, code: str = "", reason: str = "", value: Any = None) -> str:
        """An answer to the request with this id: ``await handle.signal(Transfer.answer, id, "ACCP", value="R-17")``.

        As a call it is refused if no such request is open, or such an answer is unknown; as a signal it is then kept
        among the unexpected.
        """
        return await self._reaction().answered(id, Answer(code, reason, value))

    @sent
    async def abort(self, why: str) -> str:
        """End the flow as failed, in the state ``aborted``: its times and requests count no more."""
        return await self._reaction().abort(why)

    @timer
    async def due(self) -> None:
        """A time has come: a state or a request has timed out, or a request is sent again."""
        await self._reaction().come_due()

    @classmethod
    def diagram(cls) -> str:
        """The flow as a Mermaid state diagram."""
        return drawing.diagram(cls.__flow__)

    @classmethod
    def table(cls) -> str:
        """The flow's behaviour as a Markdown table."""
        return drawing.table(cls.__flow__)

    @classmethod
    def scenario(cls) -> str:
        """A skeleton of tests, as Python text: one for each way to an end, with ``...`` where values belong."""
        return drawing.scenario(cls.__flow__)

    def _is_passive(self) -> bool:
        state = self.__flow__.states.get(self.flow.state)
        return state is not None and state.passivating

    def _reaction(self) -> Reaction:
        return Reaction(self, self.__flow__)

    @classmethod
    def _code(cls) -> list[FunctionType]:
        return cls.__flow__.functions


RESERVED = {name: value for name, value in vars(Flow).items() if not name.startswith("__")}
"""What every flow has, and no flow may have otherwise."""
