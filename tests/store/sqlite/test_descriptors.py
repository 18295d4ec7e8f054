"""A SQLite store without descriptors: it is away for a while, which is nobody's mistake in the URL."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perdure.clock import Computer
from perdure.errors import StoreUnavailable
from perdure.store.url import store_for


@contextmanager
def refused_files() -> Iterator[None]:
    """While inside, the system refuses every file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # with 0 a thread's poll() of one file is refused too
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("there", [False, True])
async def test_a_file_that_the_system_refuses_is_opened_at_the_next_try(sqlite_url: str, there: bool) -> None:
    if there:
        made = store_for(sqlite_url, Computer())
        await made.open(migrate=True)
        await made.close()
    store = store_for(sqlite_url, Computer())
    with refused_files(), pytest.raises(StoreUnavailable, match="refuses this OS process"):
        await store.open(migrate=True)
    await store.open(migrate=True)
    assert await store.now() > 0
    await store.close()
