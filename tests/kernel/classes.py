"""Classes: one of each kind that a user may pass through a payload, for the tests of payloads."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Line:
    sku: str
    count: int
    price: Decimal = Decimal("1.10")


@dataclasses.dataclass
class SpecialLine(Line):
    gift: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Cart:
    lines: list[Line]
    tags: set[str] = dataclasses.field(default_factory=set)
    colour: Colour = Colour.RED
    note: Any = None


@dataclasses.dataclass
class One:
    only: float


@dataclasses.dataclass(eq=False)
class Bare:
    n: int


@dataclasses.dataclass
class Memo:
    n: int
    note: Any = dataclasses.field(default=None, compare=False)


class Point(msgspec.Struct):
    x: int
    y: float | msgspec.UnsetType = msgspec.UNSET


class Tagged(msgspec.Struct, tag="tagged", rename="camel", omit_defaults=True):
    first_name: str
    last_name: str = ""


class Other(msgspec.Struct, tag="other"):
    n: int


class Pair(msgspec.Struct, array_like=True, tag=True):
    left: int
    right: str = "r"


class Place(NamedTuple):
    city: str
    zip: int


@dataclasses.dataclass
class Taken:
    at: datetime


class Model(pydantic.BaseModel):
    at: datetime
    amount: Decimal = Decimal("2.50")
    sizes: tuple[int, ...] = ()
    renamed: int = pydantic.Field(default=1, alias="re-named")


class Root(pydantic.RootModel[list[int]]):
    pass
