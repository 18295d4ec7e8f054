"""What is put in is tried on the one database that is migrated, unless a test puts its hand on the schema."""

from tests.runtime.conftest import postgres_url

__all__ = ["postgres_url"]
