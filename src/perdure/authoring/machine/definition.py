"""The definition of a machine: its fields, its methods, and the workflow that runs them."""

from __future__ import annotations

import difflib  # noqa: F401 (`near` needs it, and in a turn it could fail to be imported)
import inspect
from types import FunctionType
from typing import Any, ClassVar, cast, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Raw, Struct, json
from msgspec import field as struct_field

from perdure.authoring.definitions import name_of, origin_of
from perdure.authoring.machine.life import Life
from perdure.authoring.method import (
    CallMethod,
    InitMethod,
    Method,
    SignalMethod,
    TimerMethod,
    without_self,
)
from perdure.authoring.workflow import Workflow
from perdure.clock import Duration
from perdure.errors import DefinitionError, InvalidInput, PayloadError
from perdure.kernel import payload
from perdure.kernel.call_shape import CallShape
from perdure.kernel.checkpoint import MARK
from perdure.kernel.names import check_name, near, no_such_method
from perdure.kernel.process import Process
from perdure.kernel.reading import checked_type, plain_kinds

field = struct_field
"""A field of a machine whose default must be made anew: ``field(default_factory=list)``."""

OWN = "__machine__"
"""Where the class of a machine keeps its workflow."""


class Machine:
    """The class of a durable machine: its annotated fields are stored, its marked methods change them, one at a time.

    ::

        class Account(machine.Machine):
            owner: str
            balance: int = 0

            @machine.init
            async def opened(self, owner: str) -> None:
                self.owner = owner

            @machine.call
            async def deposit(self, amount: int) -> int:
                self.balance += amount
                return self.balance

    A method that has ended is never run again. One that raises leaves the fields as they were before it. ``name`` is
    the kind of its processes (default: that of the class), ``version``, ``deadline`` and ``idle`` are as for a
    workflow, and ``form`` is the version of its fields, see :meth:`upgraded`. Raises DefinitionError.
    """

    __machine__: ClassVar[MachineWorkflow]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: str = "",
        form: int = 1,
        deadline: Duration | None = None,
        idle: Duration | None = None,
    ) -> None:
        super().__init_subclass__()
        methods = {one.name: one for base in reversed(cls.__mro__) for one in vars(base).values() if _is_method(one)}
        beginnings = [one for one in methods.values() if isinstance(one, InitMethod)]
        if not beginnings:
            return  # a base of machines, which has no beginning of its own
        cls.__machine__ = MachineWorkflow(cls, methods, name, version, form, deadline, idle)
        for beginning in beginnings:
            setattr(cls, beginning.name, cls.__machine__)

    @classmethod
    def upgraded(cls, fields: dict[str, Any], form: int) -> dict[str, Any]:
        """The fields of a machine that was stored when the class had this lower ``form``, as the class has them now.

        The default gives them as they are: a field that is new needs its default.
        """
        return fields

    @classmethod
    def _code(cls) -> list[FunctionType]:
        """The functions that are its code, beside its methods."""
        return []

    def _is_passive(self) -> bool:
        """Whether it leaves memory as soon as it only waits."""
        return False


def _is_method(value: Any) -> bool:
    if isinstance(value, MachineWorkflow):
        raise DefinitionError(
            f"{value.name} has a beginning, and cannot be the base of another machine. "
            "Put what both share into a class without @machine.init."
        )
    return isinstance(value, Method)


class MachineWorkflow(Workflow[..., Any]):
    """The workflow that runs a machine's methods, one after another. ``type`` is the class of the machine."""

    def __init__(
        self,
        type: type[Machine],
        methods: dict[str, Method[..., Any]],
        name: str | None,
        version: str,
        form: int,
        deadline: Duration | None,
        idle: Duration | None,
    ) -> None:
        self.type = type
        self.methods = methods
        self.form = form
        self.machine = self  # type: ignore[misc]  # of this workflow alone
        [self.init], [self.timer] = self._single(InitMethod), self._single(TimerMethod) or [None]
        self.function = self.init.function
        self.name = name_of(_named(self.function, type), name, "machine")
        self.letters = [one.name for one in methods.values() if isinstance(one, CallMethod | SignalMethod)]
        for method in methods.values():
            check_name(method.name, f"the name of {method!r}")
            method.shape = CallShape(without_self(method.function, answers=method is not self.init))
        self.shape = self.init.shape
        self._fields()
        self._define(version or (_origin(self.function, type) if name is None else ""), deadline, idle)

    def __repr__(self) -> str:
        return f"<machine {self.name}>"

    @property
    def functions(self) -> tuple[FunctionType, ...]:
        """Its methods, and what else is its code."""
        return (*(method.function for method in self.methods.values()), *self.type._code())

    def _single(self, kind: type[Method[..., Any]]) -> list[Any]:
        found = [one for one in self.methods.values() if isinstance(one, kind)]
        if len(found) > 1:
            names = " and ".join(one.name for one in found)
            raise DefinitionError(f"{self.type.__qualname__} has two methods @machine.{kind.kind}: {names}. Keep one.")
        return found

    # -- fields ------------------------------------------------------------------------------------------------------

    def _fields(self) -> None:
        what = self.type.__qualname__
        if "__init__" in vars(self.type):
            raise DefinitionError(f"{what} has an __init__. Begin a machine in a method marked @machine.init.")
        try:
            hints = get_type_hints(self.type, include_extras=True)
        except NameError as error:
            raise DefinitionError(
                f"the fields of {what} name {error.name!r}, which is not known where it is defined. "
                "Define or import that type above it, at the top of the module."
            ) from error
        self.types = {
            name: checked_type(type, f"field {name!r} of {what}")
            for name, type in hints.items()
            if get_origin(type) is not ClassVar and type is not ClassVar and name != OWN
        }
        if MARK in self.types:
            raise DefinitionError(f"{what} has a field {MARK!r}. Give it another name.")
        parts = [(name, type, getattr(self.type, name, NODEFAULT)) for name, type in self.types.items()]
        try:
            self.struct: type[Struct] = msgspec.defstruct(f"{what} fields", parts, kw_only=True)
        except TypeError as error:
            raise DefinitionError(f"a field of {what} cannot be: {error}. Use machine.field(...).") from None
        self._plain = {name: plain_kinds(type) for name, type in self.types.items()}
        self._what = f"the fields of {what}"

    def blank(self) -> Any:
        """A machine that has not begun: the fields with a default have it."""
        entity = object.__new__(self.type)
        for one in msgspec.structs.fields(self.struct):
            if one.default is not NODEFAULT:
                setattr(entity, one.name, one.default)
            elif one.default_factory is not NODEFAULT:
                setattr(entity, one.name, one.default_factory())
            else:
                vars(entity).pop(one.name, None)
        return entity

    def encode(self, entity: Any) -> bytes:
        """The fields as a JSON object; raises PayloadError if one has no value, or one that cannot be stored.

        So it does if the machine holds a value that is no field: that would be there until it is loaded anew.
        The machine has them from then on as they will be read, so that it does not matter when it is loaded anew.
        """
        held = vars(entity)
        missing = self.types.keys() - held.keys()
        if missing:
            what = f"field {min(missing)!r} of {self.type.__qualname__}"
            raise PayloadError(f"{what} has no value. Give it a default, or set it in @machine.init.")
        if len(held) > len(self.types):
            raise self._no_field(min(held.keys() - self.types.keys()))
        values = {name: held[name] for name in self.types}
        if all(value.__class__ in self._plain[name] for name, value in values.items()):
            return payload.encode(values, what=self._what)
        raw, read = payload.encode_and_read(self.struct(**values), self.struct, what=self._what)
        for name, value in values.items():
            if value.__class__ not in self._plain[name]:
                setattr(entity, name, getattr(read, name))
        return raw

    def _no_field(self, name: str) -> PayloadError:
        return PayloadError(
            f"{self.type.__qualname__} sets self.{name}, which is no field and would be lost.{near(name, self.types)} "
            "Annotate it in the class, or keep it in a variable of the method."
        )

    def entity(self, fields: bytes, form: int) -> Any:
        """A machine with these fields, which were stored by a class of that form; raises PayloadError."""
        if form != self.form:
            old = payload.decode(fields, dict[str, Any], what=self._what)
            fields = payload.encode(self.type.upgraded(old, form), what=self._what)
        found = payload.decode(fields, self.struct, what=self._what)
        entity = object.__new__(self.type)
        for name in self.types:
            setattr(entity, name, getattr(found, name))
        return entity

    def unknown(self, fields: bytes) -> dict[str, Raw]:
        """The fields among these that the class does not have: newer code of the same form has added them."""
        return {name: raw for name, raw in json.decode(fields, type=dict[str, Raw]).items() if name not in self.types}

    def is_passive(self, entity: Any) -> bool:
        """Whether a machine leaves memory as soon as it only waits."""
        passive: bool = entity._is_passive()
        return passive

    def check_edit(self, fields: bytes, form: int, changes: dict[str, Raw]) -> None:
        """Raise InvalidInput or PayloadError if the class has no such fields, or they could not have these values."""
        for name in changes:
            if name not in self.types:
                what = self.type.__qualname__
                raise InvalidInput(f"{what} has no field {name!r}.{near(name, self.types)} Name one that it has.")
        if form == self.form:
            self.entity(json.encode(json.decode(fields, type=dict[str, Raw]) | changes), form)

    def without(self, name: str) -> str:
        """What is said of a method that cannot be called, since the class has none of that name."""
        return no_such_method(self.type.__qualname__, name, self.letters)

    # -- running -----------------------------------------------------------------------------------------------------

    def life(self, process: Process) -> Life:
        """What runs the methods of one process."""
        return Life(self, process)


def _named(function: FunctionType, type: type) -> FunctionType:
    """A function that has the name of the class, for whoever asks by what name it goes."""
    function = cast("FunctionType", inspect.unwrap(function))
    same = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    same.__qualname__, same.__module__ = type.__qualname__, type.__module__
    return same


def _origin(function: FunctionType, type: type) -> str:
    return origin_of(_named(function, type))
