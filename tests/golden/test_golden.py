"""Golden histories: what a release wrote is replayed by every later one, to the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.kernel.event import EventType
from tests.golden.page import FOLDER, looks, read
from tests.golden.record import SCENES

PAGES = sorted(FOLDER.glob("*/*.json"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_history_of_a_release_is_replayed_to_what_it_came_to_then(path: Path) -> None:
    page = read(path)
    assert list(looks(page)) == page.looks


def test_every_scene_is_kept_and_together_they_hold_all_that_the_code_is_told_of() -> None:
    assert {path.stem.rpartition("-")[0] for path in PAGES} == set(SCENES)
    seen = {event.type for path in PAGES for event in read(path).events}
    people = {
        EventType.REVIVED, EventType.HELD, EventType.RESUMED, EventType.BROKEN, EventType.TERMINATED,
        EventType.EXPIRED, EventType.ANSWER_IGNORED, EventType.RESULT_KEPT, EventType.SET_BY_HAND, EventType.SKIPPED,
        EventType.DEADLINE_SET,
    }  # fmt: skip
    assert seen == set(EventType) - people
