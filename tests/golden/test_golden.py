"""Golden histories: what a release wrote is replayed by every later one, to the same place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.event import EventType
from tests.golden.page import FOLDER, looks, read
from tests.golden.record import SCENES

PAGES = sorted(FOLDER.glob("*/*.json"))


ADVICE = ". Catch this error in the workflow, or mend its cause and run `perdure retry`."
"""What the first release put behind the text of a step's error, with which a process may have ended."""


def without_advice(look: dict[str, Any]) -> dict[str, Any]:
    """The same as today's Perdure tells it: an error's text, and nothing of what to do."""
    return {name: told.removesuffix(ADVICE) if name == "error" and told else told for name, told in look.items()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_history_of_a_release_is_replayed_to_what_it_came_to_then(path: Path) -> None:
    page = read(path)
    assert list(looks(page)) == [without_advice(look) for look in page.looks]


def test_every_scene_is_kept_and_together_they_hold_all_that_the_code_is_told_of() -> None:
    assert {path.stem.rpartition("-")[0] for path in PAGES} == set(SCENES)
    seen = {event.type for path in PAGES for event in read(path).events}
    people = {
        EventType.REVIVED, EventType.HELD, EventType.RESUMED, EventType.BROKEN, EventType.TERMINATED,
        EventType.EXPIRED, EventType.ANSWER_IGNORED, EventType.RESULT_KEPT, EventType.SET_BY_HAND, EventType.SKIPPED,
        EventType.DEADLINE_SET, EventType.GIVEN_UP,
        EventType.REPAIRED, EventType.KEY_RELEASED, EventType.TIMER_CHANGED, EventType.FIELDS_EDITED,
         EventType.VERSION_MOVED, EventType.PRIORITY_SET, EventType.ATTRIBUTES_EDITED,
         EventType.ARGUMENTS_KEPT, EventType.LOOK_CUT_SHORT,
    }  # fmt: skip
    assert seen == set(EventType) - people
