"""What is open already, the environment, and a clock inside of a class are refused when a workflow is defined."""

from __future__ import annotations

import io
import os
import random
import socket
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from os import environ
from pathlib import Path
from time import time as original_time
from typing import Any, NamedTuple
from uuid import uuid4

import attrs
import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy
from sqlalchemy import orm

from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError

database = sqlite3.connect(":memory:")
run_sql = database.execute
engine = sqlalchemy.create_engine("sqlite://")
session = orm.Session(engine)
table = sqlalchemy.Table("orders", sqlalchemy.MetaData(), sqlalchemy.Column("id", sqlalchemy.Integer))
driver = psycopg.Connection.__new__(psycopg.Connection)
ours, theirs = socket.socketpair()
log_file = Path(os.devnull).open("a")  # noqa: SIM115
in_memory = io.StringIO()
chance = random.Random(7)
state = type("RandomState", (), {"__module__": "numpy.random.mtrand", "rand": lambda self: 4})()
rand = state.rand


async def by_sqlite() -> Any:
    return database.execute("SELECT 1")


async def by_its_method() -> Any:
    return run_sql("SELECT 1")


async def by_an_engine() -> Any:
    return engine.connect()


async def by_a_session() -> None:
    session.commit()


async def by_psycopg() -> Any:
    return driver.execute("SELECT 1")


async def by_a_socket() -> None:
    ours.send(b"x")


async def by_a_file() -> None:
    log_file.write("x")


async def by_the_environment() -> str:
    return os.environ["HOME"]


async def by_a_name_of_it() -> str:
    return environ["HOME"]


async def by_getenv() -> str | None:
    return os.getenv("HOME")


async def by_shared_chance() -> float:
    return chance.random()


async def by_chance_of_numpy() -> Any:
    return rand()


def _asked() -> Any:
    return database.execute("SELECT 1")


async def by_a_function_of_theirs() -> Any:
    return _asked()


async def printed() -> None:
    sys.stdout.write("x")
    in_memory.write("x")


async def made() -> Any:
    return sqlalchemy.select(table), random.random(), io.BytesIO(), sqlite3.Connection, os.path.join("a", "b")


IO = "would do I/O again at every replay"
DIFFERS = "would differ at every replay"


@pytest.mark.parametrize(
    ("function", "why", "what"),
    [
        (
            by_sqlite,
            IO,
            "uses database, a sqlite3.Connection that is open already. Move that into a function marked @step",
        ),
        (by_its_method, IO, "uses run_sql, of a sqlite3.Connection that is open already"),
        (by_an_engine, IO, "uses engine, a sqlalchemy.Engine"),
        (by_a_session, IO, "uses session, a sqlalchemy.Session"),
        (by_psycopg, IO, "uses driver, a psycopg.Connection"),
        (by_a_socket, IO, "uses ours, a socket.socket"),
        (by_a_file, IO, "uses log_file, a io.TextIOWrapper"),
        (by_the_environment, DIFFERS, "uses os.environ. Read it when the module is imported, or in a step"),
        (by_a_name_of_it, DIFFERS, "uses os.environ."),
        (by_getenv, DIFFERS, "uses os.getenv."),
        (
            by_shared_chance,
            DIFFERS,
            "uses chance, a random.Random that all processes share. Use perdure.now(), perdure.random",
        ),
        (by_chance_of_numpy, DIFFERS, "uses rand, of a numpy.RandomState that all processes share"),
        (by_a_function_of_theirs, IO, "_asked (" + __file__),
    ],
)
def test_what_no_turn_can_refuse_is_refused_where_the_code_names_it(
    function: Callable[..., Any], why: str, what: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        workflow(function)
    assert f"<workflow {function.__name__}> {why}: " in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize("function", [printed, made])
def test_what_does_no_io_may_be_named(function: Callable[..., Any]) -> None:
    workflow(name=f"resources/{function.__name__}")(function)


def _stamp() -> datetime:
    return datetime.now(UTC)


@dataclass
class Order:
    number: str
    at: datetime = field(default_factory=datetime.now)
    id: str = field(default_factory=lambda: str(uuid4()))


class Parcel(msgspec.Struct):
    number: str
    on: date = msgspec.field(default_factory=date.today)


class Letter(pydantic.BaseModel):
    at: float = pydantic.Field(default_factory=original_time)


@attrs.define
class Receipt:
    at: datetime = attrs.field(factory=_stamp)


class Pair(NamedTuple):
    first: int
    second: int = 2


async def orders() -> Any:
    return Order("A-17")


async def parcels() -> Any:
    return Parcel(number="A-17")


async def letters() -> Any:
    return Letter()


async def receipts() -> Any:
    return Receipt()


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (orders, "its field 'at' is filled in by datetime.now(). Give it: at=perdure.now()."),
        (parcels, "its field 'on' is filled in by date.today(). Give it: on=perdure.now()."),
        (letters, "its field 'at' is filled in by time()"),
        (receipts, "_stamp ("),
    ],
)
def test_a_class_that_would_take_a_field_from_the_clock_is_refused(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        workflow(function)
    first = function.__code__.co_firstlineno
    assert f"(...) at {__file__}:{first + 1} would differ at every replay: " in str(caught.value)
    assert what in str(caught.value)


async def given(at: datetime, more: dict[str, Any]) -> Any:
    return (
        Order("A-17", at), Order("A-17", at=at), Order(**more), Order(*more), Parcel("A-17", at.date()),
        Letter(at=1.0), Receipt(at), Pair(1),
    )  # fmt: skip


def test_a_field_that_the_call_gives_is_no_reason() -> None:
    workflow(name="resources/given")(given)
