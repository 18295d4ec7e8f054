"""The real workers of a former release work beside today's on one database, under kills, and everything ends right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.release import RELEASES
from tests.upgrade.rolling import rolled, source


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
async def test_old_and_new_workers_bring_every_process_to_its_right_end_while_both_are_killed(
    release: str, store_url: str, tmp_path: Path
) -> None:
    old = source(release, tmp_path)
    if old is None:
        pytest.skip("this clone has no history, from which the source of the release is taken: git fetch --unshallow")
    processes, wrong = await rolled(store_url, old, tmp_path)
    assert (processes, wrong) == (36, [])
