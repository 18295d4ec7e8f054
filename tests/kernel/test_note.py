"""Notes: a worker hears of its change by reading, also when its answer was lost."""

from __future__ import annotations

import pytest

from perdure.kernel.note import Note

CHANGE = Note("a", 3, 7, '{"by":"me"}')


@pytest.mark.parametrize("answered", [True, False])
def test_a_change_that_is_found_was_written(answered: bool) -> None:
    assert CHANGE.written({"a": CHANGE}, answered=answered) is True


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("found", [{}, {"a": Note("a", 2)}, {"a": Note("a", 3, 7, '{"by":"you"}')}])
def test_a_change_was_refused_if_its_version_is_not_there_or_is_that_of_another(
    found: dict[str, Note], answered: bool
) -> None:
    assert CHANGE.written(found, answered=answered) is False


def test_nobody_knows_of_a_change_whose_answer_was_lost_and_that_was_perhaps_written_over() -> None:
    assert CHANGE.written({"a": Note("a", 4)}, answered=False) is None
    assert CHANGE.written({"a": Note("a", 4)}, answered=True) is False
