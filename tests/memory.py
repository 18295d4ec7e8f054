"""Where files can be kept in memory: the tests write thousands of them, and a disk that stalls looks like a defect."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
"""Where files are kept in memory on Linux."""
SERVER_BYTES, ALL_BYTES = 4 * 1024**3, 8 * 1024**3
"""How much must be free there for a server's databases, and for all that the tests write beside them."""


def in_memory(room: int = SERVER_BYTES) -> Path | None:
    """A folder in memory with so much room, if there is one."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free > room
    return MEMORY if roomy else None


def for_everything() -> Path | None:
    """A folder in memory for all that tests write, if programs that are written there may be run."""
    folder = in_memory(ALL_BYTES)
    return None if folder is None or os.statvfs(folder).f_flag & os.ST_NOEXEC else folder
