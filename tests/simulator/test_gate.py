"""The gate: engines that are broken on purpose, each of which the simulated histories must notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import json

from tests.simulator.broken import CANARY, DEFECTS, page
from tests.simulator.broken.__main__ import Gate
from tests.simulator.broken.chase import ROOT, Found, chased, repeated
from tests.simulator.broken.defect import SOURCE, Defect, Edit, misfits, plant
from tests.simulator.broken.hunt import chosen
from tests.simulator.broken.journal import Journal
from tests.simulator.campaign import Kept
from tests.simulator.test_simulation import SEEDS

QUICK = (
    "a claim does not make a new token",
    "a timer may be recorded before its time",
    "a key that is taken is answered with the id of a process that does not exist",
    "a new run carries the keys of the run before",
    "a cancelled process ends as completed",
    "a signal is sent anew when another worker goes on",
    "one row that cannot be read has all parked that were claimed with it",
    "an event of a type that nobody knows is taken for the beginning of something known",
    "a process whose messages a claim had to leave is taken for one that has lost them",
)
"""Defects that the first few histories notice, of every chapter, and that no other test here plants: the others take
minutes, and ``make gate``.
"""
MOST = 60


def test_every_defect_still_fits_the_engine_it_is_to_break() -> None:
    assert [misfit for defect in DEFECTS for misfit in misfits(defect)] == []


def test_there_is_a_defect_for_every_rule_that_histories_can_notice() -> None:
    rules = {defect.rule for defect in DEFECTS}
    assert len(DEFECTS) >= 30 and len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert rules >= {"1", "3", "4", "5", "10", "11", "12", "13", "14", "17", "18", "19", "21", "23", "24"}


def test_what_histories_cannot_see_is_left_to_a_test_that_is_there() -> None:
    for defect in DEFECTS:
        assert bool(defect.beyond) == bool(defect.tests) and not (defect.beyond and defect.harmless), defect.name
        assert [test for test in defect.tests if not stands(test)] == [], defect.name


def test_histories_that_a_defect_names_are_there_and_its_engine_is_hunted_with_them() -> None:
    named = {defect.histories for defect in DEFECTS}
    assert named >= {"", "core_damage:damaging", "core_upgrade:rolling"}
    assert [histories for histories in named if not chosen(histories)[1]] == []
    assert len({chosen(histories)[0] for histories in named}) == len(named)


def stands(test: str) -> bool:
    """Whether a test of that name is in its file, or in the suite that every store of that file hears."""
    path, *names = test.split("::")
    if not (ROOT / path).is_file():
        return False
    suite = ROOT.glob("src/perdure/testing/conformance/*.py") if path.endswith("test_conformance.py") else ()
    texts = [file.read_text() for file in (ROOT / path, *suite)]
    return path.startswith("tests/") and all(re.search(rf"(def|class) {name}\b", "".join(texts)) for name in names)


def test_a_defect_is_planted_in_a_copy_and_never_in_the_tree(tmp_path: Path) -> None:
    plant(CANARY, tmp_path)
    [edit] = CANARY.edits
    assert "\n".join(edit.wrong) in (tmp_path / "perdure" / edit.file).read_text()
    assert list(misfits(CANARY)) == []


def test_what_is_compiled_from_a_planted_file_stays_out_of_the_tree(tmp_path: Path) -> None:
    [edit] = CANARY.edits
    room = Path(edit.file).parent
    plant(CANARY, tmp_path)
    planted = tmp_path / "perdure"
    real = [planted, planted / room, planted / "__pycache__", planted / room / "__pycache__"]
    assert [path for path in real if path.is_symlink()] == []
    assert not [*(planted / room / "__pycache__").glob(f"{Path(edit.file).stem}.*")]
    assert not (planted / edit.file).is_symlink()
    names = {path.relative_to(planted) for path in planted.glob("*") if path.name != "__pycache__"}
    assert names == {path.relative_to(SOURCE) for path in SOURCE.glob("*") if path.name != "__pycache__"}


def test_an_engine_that_does_not_run_is_told_and_the_canary_after_it_is_noticed_at_once(tmp_path: Path) -> None:
    [edit] = CANARY.edits
    torn = Defect("torn", edits=[Edit(edit.file, edit.right, [*edit.wrong, "torn)"])])
    gate = Gate([torn, CANARY], first=0, most=MOST, cores=1)
    gate.journal = Journal(tmp_path / "gate.jsonl")
    gate.run({})
    assert list(gate.not_run) == ["torn"] and "torn: this engine does not run" in gate.not_run["torn"]
    assert gate.found[CANARY.name].law and gate.away() == []


def test_a_gate_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "build" / "gate.jsonl")
    journal.note("no fence", 0, "an engine", Found(50))
    journal.note("no fence", 0, "an engine", Found(73, seed=72, law="one_owner"))
    again = Journal(journal.path)
    assert again.found("no fence", 0, "an engine") == Found(73, seed=72, law="one_owner")
    assert again.seen(0) == {"no fence": 73} and again.seen(1) == {}
    assert again.found("no fence", 0, "another engine") == again.found("no fence", 1, "an engine") == Found(0)


def test_the_page_says_which_engine_was_noticed_and_which_got_away() -> None:
    caught, away = Defect("no fence", "writing", rule="1"), Defect("no clock", "owning", rule="15")
    text = page.page({"no fence": Found(3, seed=2, law="one_owner"), "no clock": Found(9)}, (caught, away), 0)
    assert "| no fence | 1 | 3 | `one_owner` |" in text
    assert "| no clock | 15 | **not in 9** |  |" in text
    bad = Defect("no park", "rows", rule="6", histories="core_damage:damaging")
    text = page.page({"no park": Found(2, seed=1, law="liveness")}, (bad,), 0)
    assert "| no park | 6 | 2 | `liveness` in `core_damage` |" in text


def test_the_next_gate_knows_from_the_page_after_how_many_histories_a_defect_was_noticed(tmp_path: Path) -> None:
    caught, away = Defect("no fence", "writing", rule="1"), Defect("no clock", "owning", rule="15")
    tried = Defect("no word", "owning", rule="4", beyond="it is said to people", tests=("tests/test_word.py",))
    found = {"no fence": Found(1_003, seed=1_002, law="one_owner"), "no clock": Found(9), "no word": Found(1, law="it")}
    page.write(found, (caught, away, tried), 0, tmp_path / "gate.md")
    assert page.known(tmp_path / "gate.md") == {"no fence": 1_003}
    assert page.known(tmp_path / "none.md") == {}


def test_the_page_says_in_one_sentence_how_many_were_noticed() -> None:
    caught, away = Defect("no fence", "writing", rule="1"), Defect("no clock", "owning", rule="15")
    text = page.page({"no fence": Found(3, seed=2, law="one_owner"), "no clock": Found(9)}, (caught, away), 0)
    assert "1 of 2 were noticed by histories, after 3 histories by the median and 3 at the worst" in text


@pytest.mark.parametrize("kept", sorted(SEEDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_that_is_kept_still_shows_what_it_is_kept_for(kept: Path) -> None:
    case = json.decode(kept.read_bytes(), type=Kept)
    [defect] = [defect for defect in DEFECTS if defect.name == case.defect]
    assert repeated(defect, kept).law == case.law


@pytest.mark.parametrize("name", QUICK)
def test_a_broken_engine_is_noticed(name: str) -> None:
    [defect] = [defect for defect in DEFECTS if defect.name == name]
    first = page.known().get(name, 1) - 1  # the history that noticed it when the page of the gate was written
    assert chased(defect, first=first, most=MOST).law
