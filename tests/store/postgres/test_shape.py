"""The records and the schema have the same shape: columns in the order of fields, laws under their names."""

from __future__ import annotations

import pytest
from msgspec import Struct

from perdure.kernel import soundness
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import WorkerRow
from tests.store.ground_postgres import PostgresGround

COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 ORDER BY attnum"
ANSWERED = """
    SELECT proargnames[array_position(proargmodes, 't'):] FROM pg_proc WHERE oid = $1::regproc
"""


@pytest.mark.parametrize(
    ("view", "record", "before"),
    [("process_out", Process, []), ("event_out", Event, ["process", "run"]), ("message_out", Message, [])],
)
async def test_a_view_has_the_fields_of_its_record_in_their_order(
    postgres: PostgresGround, view: str, record: type[Struct], before: list[str]
) -> None:
    columns = [row[0] for row in await postgres.outside.fetch(COLUMNS, f"perdure.{view}")]
    assert columns == [*before, *record.__struct_fields__]


@pytest.mark.parametrize("function", ["workers_with_figures", "workers_of"])
async def test_a_function_answers_the_fields_of_its_record_in_their_order(
    postgres: PostgresGround, function: str
) -> None:
    assert await postgres.outside.fetchval(ANSWERED, f"perdure.{function}") == list(WorkerRow.__struct_fields__)


async def test_the_statuses_of_the_schema_are_those_of_the_kernel_with_the_final_ones_last(
    postgres: PostgresGround,
) -> None:
    labels = await postgres.outside.fetchval("SELECT enum_range(NULL::perdure.status)::text[]")
    assert labels == [status.value for status in Status]
    assert labels[3:] == ["completed", "failed", "cancelled"]


async def test_the_laws_that_sql_can_say_are_constraints_under_their_names(postgres: PostgresGround) -> None:
    rows = await postgres.outside.fetch(
        "SELECT DISTINCT c.conname FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace "
        "WHERE n.nspname = 'perdure'"
    )
    names = {row[0] for row in rows}
    laws = {law.__name__ for law in soundness.LAWS}
    assert laws & names == {
        "unfinished_is_due",
        "one_owner",
        "history_is_gapless",
        "result_once",
        "nothing_unheard",
    }
