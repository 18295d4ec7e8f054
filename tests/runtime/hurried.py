"""An application that gives every new socket a time limit, as some do for libraries that wait for ever; cells too."""

from __future__ import annotations

import os
import socket

from perdure import Retry, step, workflow

SECONDS = 0.001
socket.setdefaulttimeout(SECONDS)


@step(hard=True, retry=Retry.NONE)
def number() -> int:
    return os.getpid()


@workflow
async def numbers_twice() -> list[int]:
    return [await number(), await number()]
