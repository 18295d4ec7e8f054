"""Atheris on one entry: it never comes back from its hunt, so each has an OS process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.entry import Entry

_DONE = re.compile(r"Done (\d+) runs|#(\d+)\s+DONE|stat::number_of_executed_units: (\d+)")
_STATS = "-print_final_stats=1"
LONGEST_BYTES = 4096
MEGABYTES = 1024
SLOWEST_SECONDS = 5


def in_its_own_process(entry: Entry, seconds: float, seed: int) -> tuple[int, str]:
    """How many inputs were fed, and what was found."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, raw in enumerate(entry.seeds):
            (corpus / str(number)).write_bytes(raw)
        limits = [f"-max_len={LONGEST_BYTES}", f"-rss_limit_mb={MEGABYTES}", f"-timeout={SLOWEST_SECONDS}"]
        words = [f"-max_total_time={max(int(seconds), 1)}", f"-seed={seed % 2**31}", f"-artifact_prefix={folder}/"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.atheris_run", entry.name, *limits, *words, _STATS, corpus],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        said = done.stderr.decode(errors="replace")
        counts = [int(next(filter(None, found.groups()))) for found in _DONE.finditer(said)]
        left = [path.read_bytes() for path in Path(folder).iterdir() if path.is_file()]
    if done.returncode == 0:
        return max(counts, default=0), ""
    why = [line for line in said.splitlines() if line and not line.startswith(("#", "INFO", " "))]
    return max(counts, default=0), f"{left!r:.400} ends with {' / '.join(why)[:600]}"


def _hunt(name: str, words: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["perdure"]):
        from tests.fuzz.entries import ENTRIES
    [entry] = [entry for entry in ENTRIES if entry.name == name]
    atheris.Setup([sys.argv[0], *words], entry.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    _hunt(sys.argv[1], sys.argv[2:])
