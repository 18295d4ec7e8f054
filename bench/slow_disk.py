"""A disk that takes its time: whatever is started meanwhile waits before each of its syncs is over.

The disk that engines are measured on may sync in 0.05 ms, since a cache answers. Disks in a cloud, and standbys that
confirm, take from 0.5 ms to several: there an engine is nearer to a bare commit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static int slowly(const char *name, int file) {
    struct timespec pause = {MICROSECONDS / 1000000, MICROSECONDS % 1000000 * 1000};
    int answer = ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
    nanosleep(&pause, 0);
    return answer;
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
"""


class NoSlowDisk(Exception):
    """Syncs cannot be made slower here; the text says what is missing."""


@contextmanager
def slowed(milliseconds: float) -> Iterator[None]:
    """Let each sync of the OS processes that are started meanwhile take so much longer; 0 changes nothing."""
    if not milliseconds:
        yield
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise NoSlowDisk("slower syncs need Linux and a C compiler (on Debian and Ubuntu: apt-get install gcc)")
    with tempfile.TemporaryDirectory(prefix="perdure-slow-disk-") as folder:
        os.chmod(folder, 0o755)  # the server runs as another user
        library = Path(folder) / "slow.so"
        define = f"-DMICROSECONDS={round(milliseconds * 1000)}L"
        command = [compiler, "-shared", "-fPIC", "-O1", define, "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(command, input=_SOURCE, text=True, check=True)
        os.environ["LD_PRELOAD"] = str(library)
        try:
            yield
        finally:
            del os.environ["LD_PRELOAD"]
