"""Which store a URL means."""

from __future__ import annotations

from perdure.clock import Machine
from perdure.errors import InvalidUrl
from perdure.store.base import Store


def store_for(url: str, machine: Machine) -> Store:
    """The store that ``url`` names, not opened yet; raises InvalidUrl."""
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        from perdure.store.sqlite import SqliteStore

        return SqliteStore(url, machine=machine)
    if scheme in ("postgresql", "postgres"):
        from perdure.store.postgres import PostgresStore

        return PostgresStore(url, machine=machine)
    raise InvalidUrl(
        f"no store is known for a URL that begins with {scheme[:20]!r}; "
        "use sqlite:///file.db or postgresql://user@host/database"
    )
