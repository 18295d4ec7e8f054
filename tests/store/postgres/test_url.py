"""The address of a PostgreSQL store: what Perdure reads from it, and what it says about a wrong one."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidUrl
from perdure.store.postgres.schema import named
from perdure.store.postgres.url import address_of


def test_the_stores_own_options_are_taken_out_and_the_drivers_are_left() -> None:
    url = "postgresql://ann:pw@db:5433/shop?schema=shop_2&pooler=transaction&sslmode=require"
    address = address_of(url)
    assert (address.schema, address.pooled) == ("shop_2", True)
    assert address.dsns == ("postgresql://ann:pw@db:5433/shop?sslmode=require",)
    assert address.shown == "db:5433/shop"


def test_a_plain_url_means_a_direct_connection_and_the_schema_perdure() -> None:
    address = address_of("postgres://localhost/shop")
    assert (address.schema, address.pooled, address.dsns) == ("perdure", False, ("postgresql://localhost/shop",))


def test_a_unix_socket_can_be_named_by_its_folder() -> None:
    address = address_of("postgresql:///shop?host=/run/postgresql&schema=x")
    assert address.dsns == ("postgresql:///shop?host=%2Frun%2Fpostgresql",)
    assert address.shown == "the local socket/shop"


def test_of_several_hosts_the_one_is_taken_that_may_be_written_to() -> None:
    address = address_of("postgresql://ann:pw@one:5433,two/shop?schema=x")
    assert address.dsns == (
        "postgresql://ann:pw@one:5433/shop?target_session_attrs=read-write",
        "postgresql://ann:pw@two/shop?target_session_attrs=read-write",
    )
    assert address.shown == "one:5433,two/shop"
    named = address_of("postgresql://one,two/shop?target_session_attrs=any")
    assert named.dsns[1] == "postgresql://two/shop?target_session_attrs=any"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://localhost/shop",
        "postgresql://localhost",
        "postgresql://localhost:port/shop",
        "postgresql://localhost,other:port/shop",
        "postgresql://localhost/shop?schema=",
        "postgresql://localhost/shop?schema=Shop",
        "postgresql://localhost/shop?schema=a;drop",
        "postgresql://localhost/shop?schema=" + "a" * 41,
        "postgresql://localhost/shop?pooler=session",
        "postgresql://[localhost/shop",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidUrl, match="write it as postgresql://"):
        address_of(url)


def test_the_schemas_name_is_put_into_the_sql_and_into_the_channels() -> None:
    sql = "SELECT perdure.now(), 'perdure_due' FROM perdure.process -- the perdure of perdure_dues"
    assert named(sql, "shop") == 'SELECT "shop".now(), \'shop_due\' FROM "shop".process -- the perdure of perdure_dues'
