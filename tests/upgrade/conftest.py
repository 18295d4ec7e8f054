"""What is upgraded here was made by a released Perdure, in a database that nobody has migrated before."""

import pytest


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    """A file that the released Perdure makes."""
    return new_sqlite_url
