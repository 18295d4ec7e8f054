"""A program that tells what it is: how it was called, what it has open, and which signals it would handle."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import stat
import sys
import threading
from pathlib import Path

from perdure.clock import Computer

BY_PYTHON = {"LC_CTYPE"}
"""What Python may set for itself at its start."""


def files() -> list[str]:
    """What is open, by its kind: files that stay open in one victim could keep another one's from their end."""
    return [f"{number} {stat.S_IFMT(os.fstat(number).st_mode):o}" for number in range(64) if is_open(number)]


def is_open(number: int) -> bool:
    """Whether this is the number of an open file."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main() -> None:
    """Tell what is the same in all programs that are called alike, then what is never the same."""
    handlers = {number: str(signal.getsignal(number)) for number in signal.valid_signals()}
    main_module = sys.modules["__main__"]
    same = {
        "words": sys.argv,
        "environment": {name: value for name, value in os.environ.items() if name not in BY_PYTHON},
        "folder": str(Path.cwd()),
        "path": sys.path,
        "main": [main_module.__name__, main_module.__spec__ and main_module.__spec__.name, __name__],
        "files": files(),
        "handlers": {int(number): shown.partition(" at 0x")[0] for number, shown in handlers.items()},
        "wakeup": signal.set_wakeup_fd(-1),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": [thread.name for thread in threading.enumerate()],
        "group": os.getpgid(0) == os.getpid(),
        "loop": asyncio._get_running_loop() is not None,
        "collector": [gc.isenabled(), gc.get_threshold()],
        "encoding": [sys.stdout.encoding, sys.stdout.line_buffering],
    }
    print("same", json.dumps(same), flush=True)
    print("chance", random.random(), Computer().new_id().hex(), os.urandom(4).hex(), flush=True)
    if sys.argv[1] == "stays":
        signal.pause()
    sys.exit(7)


if __name__ == "__main__":
    main()
