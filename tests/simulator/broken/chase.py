"""A chase: a defect is planted in a copy of the package, and histories or an ordinary test run on that copy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct, json

from tests.simulator.broken.defect import SOURCE, Defect, plant

ROOT = Path(__file__).parents[3]
SECONDS = 36_000.0
TEST_SECONDS = 180.0
"""An ordinary test that has not ended by then has noticed something: a broken engine may go on for ever."""


class Found(Struct):
    """What came of so many ``histories`` from the first seed on: the ``law`` that the one with ``seed`` has broken.

    A defect that histories cannot see has the number of its tests for their number, for its law the ordinary tests that
    have noticed it, and no seed.
    """

    histories: int
    seed: int | None = None
    law: str = ""


def chased(defect: Defect, first: int, most: int) -> Found:
    """Hunt one defect with so many histories; raises RuntimeError if its engine does not even run."""
    return played(defect, range(first, first + most))


def played(defect: Defect, seeds: Sequence[int]) -> Found:
    """Hunt one defect with the histories of these seeds; raises RuntimeError as :func:`chased` does."""
    return _hunted(defect, ",".join(map(str, seeds)), defect.histories)


def repeated(defect: Defect, kept: Path) -> Found:
    """Play a kept case on the engine with that defect; raises RuntimeError as :func:`chased` does."""
    return _hunted(defect, str(kept))


def _hunted(defect: Defect, *words: str) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join((str(plant(defect, Path(folder))), str(ROOT)))
        hunt = subprocess.run(
            [sys.executable, "-m", "tests.simulator.broken.hunt", *words],
            env={**os.environ, "PYTHONPATH": path},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    lines = hunt.stdout.strip().splitlines()
    if hunt.returncode or not lines:
        raise RuntimeError(f"{defect.name}: this engine does not run: {hunt.stderr.strip()[-600:]}")
    return json.decode(lines[-1], type=Found)


def tested(defect: Defect) -> Found:
    """Run the ordinary test that is to notice a defect, in its long form; its failure is what we hope for."""
    noticed = Found(len(defect.tests), law=", ".join(defect.tests))
    with tempfile.TemporaryDirectory() as folder:
        path = plant(defect, Path(folder))
        pytest = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-o", f"pythonpath={path} ."]
        test = subprocess.Popen(
            [*pytest, *defect.tests],
            env={**os.environ, "PYTHONPATH": str(path), "PERDURE_HISTORIES": "all"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            told, _ = test.communicate(timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return noticed
        finally:
            _end(test, folder)
    if test.returncode not in (0, 1):
        raise RuntimeError(f"{defect.name}: its test does not run: {told.strip()[-600:]}")
    return noticed if test.returncode else Found(len(defect.tests))


def _end(test: subprocess.Popen[str], folder: str) -> None:
    """End a test with all that runs on the planted package: what a broken engine leaves behind may run for ever."""
    test.kill()
    test.wait()
    if test.stdout is not None:
        test.stdout.close()
    for environment in Path("/proc").glob("[0-9]*/environ"):  # the members of a crew have sessions of their own
        with suppress(OSError):
            if folder.encode() in environment.read_bytes():
                os.kill(int(environment.parent.name), signal.SIGKILL)


def fingerprint(defect: Defect) -> str:
    """A short name of the engine, the histories and the defect: what was found holds as long as it is the same."""
    told = blake2b(digest_size=8)
    for folder, files in ((SOURCE, "**/*.*"), (ROOT / "tests/simulator", "*.py")):
        for path in sorted(folder.glob(files)):
            if path.suffix != ".pyc":
                told.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    told.update(json.encode([(edit.file, edit.right, edit.wrong) for edit in defect.edits]))
    told.update(defect.histories.encode())
    return told.hexdigest()
