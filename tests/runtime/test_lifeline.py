"""The lifeline: how a child OS process hears that its parent is dead."""

from __future__ import annotations

import asyncio
import socket

import pytest

from perdure.runtime.os_process import watch_parent
from tests.runtime.conftest import LIMIT

NEVER_SECONDS = 3600.0
"""After which a child that has not ended would be ended: this OS process is no child."""


@pytest.mark.parametrize("read", [True, False], ids=["it has read all", "something is unread"])
async def test_a_child_hears_of_its_parents_death_whatever_the_parent_has_read(read: bool) -> None:
    parent, child = socket.socketpair()
    heard = asyncio.Event()
    with child:
        watch_parent(child.fileno(), heard.set, NEVER_SECONDS)
        child.send(b".")
        if read:
            assert parent.recv(1) == b"."
        parent.close()
        await asyncio.wait_for(heard.wait(), LIMIT)
