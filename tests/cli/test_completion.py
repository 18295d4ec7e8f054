"""Shell completion: the script for each shell knows every command and its options, and bash uses it."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from perdure.cli.app import whole_app
from tests.cli.terminal import Terminal


@cache
def script_of(shell: str) -> str:
    """What the command prints for a shell: it takes half a second to write."""
    said = Terminal("").bare("completion", shell)
    assert said.code == 0
    return said.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_knows_every_command_and_its_options(shell: str) -> None:
    script = script_of(shell)
    options = ["roots", "utc", "attribute", "share-concurrency", "catch-up"]
    assert [word for word in [*whole_app(), *options] if word.lstrip("-") not in script] == []


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["perdure", "work"], {"worker", "workers"}),
        (["perdure", "ps", "--ro"], {"--roots"}),
        (["perdure", "queue", "unb"], {"unblock"}),
        (["perdure", "schedule", "back"], {"backfill"}),
        (["perdure", "completion", "f"], {"fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(tmp_path: Path, typed: list[str], completed: set[str]) -> None:
    script = tmp_path / "perdure.bash"
    script.write_text(script_of("bash"))
    line = f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}"
    asked = f'source {script}; {line}; _perdure; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == completed
