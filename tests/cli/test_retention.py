"""`perdure retention`: the rules, what they would remove, and doing so, for people and for programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import limits
from tests.cli.terminal import Terminal

RULES = '[[retention]]\nkind = "appr*"\nafter = 0\narchive = "old"\n[[retention]]\nkind = "payment"\nafter = "never"\n'


@pytest.fixture
def ended(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Two approvals have ended and one waits; the first minute after an end is over."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limits, "RETENTION_SETTLED_SECONDS", 0.0)
    for key in ("A-1", "A-2", "A-3"):
        terminal("start", "tests.cli.till:approval", key, "--key", key)
    terminal("terminate", "A-1", "A-2")
    return terminal


def test_rules_are_listed_tried_and_carried_out(ended: Terminal) -> None:
    Path("perdure.toml").write_text(RULES)
    assert ended("retention", "preview").has("appr* cancelled, completed, failed", "old 2")
    assert ended("retention", "list").has("appr* cancelled, completed, failed", "old", "0 0 0")
    said = ended("retention", "run")
    assert said.code == 0 and said.out.startswith("2 processes removed, 2 of them archived\n"), said.err
    [file] = Path("old").iterdir()
    assert said.out.splitlines()[1] == f"old/{file.name}"
    assert ended("retention", "list").has("appr* cancelled, completed, failed", "old", "2 2 0")
    assert ended("retention", "list").has("payment cancelled, completed, failed ever -")
    assert [row["key"] for row in ended("ps", "--json").json] == ["A-3"]


def test_an_archived_process_with_a_key_comes_back_elsewhere_and_here_once_its_key_is_free(
    ended: Terminal, tmp_path: Path
) -> None:
    Path("perdure.toml").write_text(RULES)
    file = ended("retention", "run", "--json").json["files"][0]
    said = ended("import", file)
    assert said.code == 1 and said.out.startswith("0 processes taken, 0 were here already")
    assert said.has("refused", "retention has removed it here, and its key is kept")
    other = Terminal(f"sqlite:///{tmp_path}/other.db")
    other("migrate")
    assert other("import", file).out == "2 processes taken, 0 were here already\n"
    assert {row["key"] for row in other("ps", "--json").json} == {"A-1", "A-2"}


def test_programs_read_the_same_as_json(ended: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_RETENTION", '[{"kind": "approval", "status": "cancelled", "after": 0}]')
    rule = {"kind": "approval", "status": ["cancelled"], "after": 0.0, "archive": None, "compress": True}
    [found] = ended("retention", "preview", "--json").json
    assert (found["rule"], found["processes"], found["waiting"]) == (rule, 2, 0)
    assert ended("retention", "run", "--json").json == {"removed": 2, "archived": 0, "left": 0, "files": []}
    [listed] = ended("retention", "list", "--json").json
    assert (listed["rule"], listed["removed"]) == (rule, 2)


def test_without_rules_it_says_where_to_write_them(ended: Terminal) -> None:
    for verb in ("list", "preview", "run"):
        assert ended("retention", verb).out.startswith("there is no rule: write [[retention]] into perdure.toml")


def test_an_archive_that_cannot_be_written_fails_with_what_to_do(ended: Terminal) -> None:
    Path("perdure.toml").write_text(RULES)
    Path("old").write_text("no folder")
    said = ended("retention", "run")
    assert said.code == 1 and "the archive 'old' cannot be written, so nothing is removed" in said.err
    assert len(ended("ps", "--json").json) == 3
