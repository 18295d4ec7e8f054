"""What a start costs, in milliseconds of processor time: ``python -m bench.startup``.

Each line is a program of its own, which is started anew some times; the least counts, because what else the machine
does only adds to it. The first line, Python with asyncio, is a part of all others.
"""

from __future__ import annotations

import os
import subprocess
import sys

STARTS = 7
PROGRAMS = {
    "import asyncio": ("-c", "import asyncio"),
    "import perdure": ("-c", "import perdure"),
    "from perdure import Engine": ("-c", "from perdure import Engine"),
    "a worker's code": ("-c", "from perdure import Engine; import perdure.runtime.worker"),
    "perdure --help": ("-m", "perdure", "--help"),
    "perdure ps --help": ("-m", "perdure", "ps", "--help"),
}


def milliseconds(words: tuple[str, ...]) -> float:
    """The processor time of one start of Python with these arguments."""
    before = os.times()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return 1000 * (after.children_user + after.children_system - before.children_user - before.children_system)


def main() -> None:
    """Print a line for each program."""
    for title, words in PROGRAMS.items():
        milliseconds(words)  # compiles what is not compiled yet
        print(f"{title:<28} {min(milliseconds(words) for _ in range(STARTS)):4.0f} ms", flush=True)


if __name__ == "__main__":
    main()
