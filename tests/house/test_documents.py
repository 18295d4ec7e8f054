"""The documents are tested: what they name exists, and what exists is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import generate
from perdure import limits, telemetry
from perdure.cli.app import whole_app
from perdure.kernel.process import Status
from perdure.settings import CONFIG_FILE
from tests.house.page import DOCS, blocks, file_named, holds, links, pages, rows, spans
from tests.house.schema import DATABASES, schema
from tests.house.test_laws import LAWS, OWN_TABLES
from tests.house.test_names import FORBIDDEN
from tests.house.test_settings import variables_of_source
from tests.house.tree import PACKAGE, ROOT, modules, parsed

WORDS = (
    "process", "run", "event", "message", "turn", "step", "task", "queue", "worker", "lease", "commit", "store",
    "sweep", "policy", "operation",
)  # fmt: skip
"""The words of the design, in its order."""

VERBS = ("retry", "revive", "repair")

SWEEP_CONTEXT = PACKAGE / "runtime" / "sweeps" / "context.py"
"""What every sweep is given, and no sweep."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def named(cell: str) -> list[str]:
    """The code spans of a table cell."""
    return spans(cell)


# -- ARCHITECTURE ----------------------------------------------------------------------------------------------------


def absent(what: str, where: str, name: str) -> Iterator[str]:
    """Files that are not there, and names that none of them holds."""
    paths = {place: file_named(place) for place in named(where)}
    yield from (f"{what}: there is no {place}" for place, path in paths.items() if path is None)
    known = [path for path in paths.values() if path is not None]
    for one in named(name):
        if not any(holds(path, one) for path in known):
            yield f"{what}: {where} does not hold {one}"


def misplaced(text: str) -> Iterator[str]:
    """Rows of "where does X happen" whose file or name does not exist."""
    for what, where, name in rows(text, "what happens"):
        yield from absent(what, where, name)


def journeys(text: str) -> dict[str, list[list[str]]]:
    """The journeys of the architecture: their steps, each with its file, a name, and what happens there."""
    parts = [part for part in text.split("\n### ")[1:] if "\n| file |" in part]
    return {part.partition("\n")[0]: rows(part, "file") for part in parts}


def astray(text: str) -> Iterator[str]:
    """Steps of journeys whose file or name does not exist, and journeys that are too short or too long."""
    for journey, steps in journeys(text).items():
        if not 8 <= len(steps) <= 12:
            yield f"{journey} has {len(steps)} steps"
        for where, name, told in steps:
            yield from absent(f"{journey}: {told}", f"{where}, {told}", name)


def test_the_table_of_where_things_happen_is_true() -> None:
    assert list(misplaced(text_of("docs/WHERE.md"))) == []


def test_the_table_of_where_things_happen_can_be_wrong() -> None:
    head = "| what happens | where | name |\n|---|---|---|\n"
    assert list(misplaced(head + "| a | `kernel/absent.py` | `x` |"))
    assert list(misplaced(head + "| a | `kernel/commit.py` | `Comit` |"))
    assert list(misplaced(head + "| a | `kernel/commit.py` | `Commit.absent` |"))
    assert not list(misplaced(head + "| a | `kernel/commit.py` | `Commit` |"))


def test_the_five_journeys_of_the_architecture_can_be_followed_recovery_first() -> None:
    text = text_of("docs/ARCHITECTURE.md")
    assert list(journeys(text)) == ["A claim after a crash", "A start", "A step's result", "A signal", "A command"]
    assert list(astray(text)) == []


def test_a_journey_that_leads_nowhere_is_found() -> None:
    text = text_of("docs/ARCHITECTURE.md")
    for right, wrong in (("`runtime/heartbeat.py`", "`runtime/grasp.py`"), ("`Claimer.claim`", "`Claimer.clam`")):
        assert right in text
        assert list(astray(text.replace(right, wrong)))
    assert list(astray(re.sub(r"^\| `client/commands.py` .*\n", "", text, flags=re.MULTILINE)))


def test_every_room_of_the_package_is_in_the_architecture() -> None:
    text = text_of("docs/ARCHITECTURE.md")
    rooms = {path.parent.name if path.name == "__init__.py" else path.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert [room for room in sorted(rooms) if not re.search(rf"\b{re.escape(room)}\b", text)] == []


def test_every_law_is_told_in_the_architecture() -> None:
    told = re.findall(r"^\d+\. `(\w+)`", text_of("docs/ARCHITECTURE.md"), re.MULTILINE)
    assert tuple(told) == LAWS


def test_the_architecture_is_read_in_ten_minutes() -> None:
    assert len(text_of("docs/ARCHITECTURE.md").splitlines()) <= 150


# -- FAILMAP ---------------------------------------------------------------------------------------------------------


def unproven(text: str) -> Iterator[str]:
    """Rows of the fail map whose sweep, test or counter does not exist, and sweeps without a row of their own."""
    swept: dict[str, set[str]] = {}
    for stuck, freed, test, counter in rows(text, "stuck how"):
        for place in named(freed):
            if file_named(place) is None:
                yield f"{stuck}: there is no {place}"
            swept.setdefault(Path(place).name, set()).update(named(counter))
        for one in named(test):
            place, _, name = one.partition("::")
            path = file_named(place)
            if path is None or (name and name not in parsed(path).text):
                yield f"{stuck}: there is no test {one}"
            elif name and not re.search(rf"def {name}\(", parsed(path).text):
                yield f"{stuck}: {one} is not a test"
        yield from (f"{stuck}: {one} is not counted" for one in named(counter) if one not in telemetry.COUNTERS)
        if not (named(freed) and named(test) and named(counter)):
            yield f"{stuck}: something is missing"
    for sweep in sorted(set((PACKAGE / "runtime" / "sweeps").glob("[a-z]*.py")) - {SWEEP_CONTEXT}):
        counted = re.search(r'^COUNTER = "(\w+)"', sweep.read_text(encoding="utf-8"), re.MULTILINE)
        if counted is None or counted[1] not in swept.get(sweep.name, ()):
            yield f"the sweep {sweep.name} has no row with its counter"


def test_every_way_of_getting_stuck_has_a_sweep_a_test_and_a_counter() -> None:
    assert list(unproven(text_of("docs/FAILMAP.md"))) == []


def test_a_wrong_row_of_the_fail_map_is_found() -> None:
    text = text_of("docs/FAILMAP.md")
    sound = len(list(unproven(text)))
    for right, wrong in (
        ("`runtime/claimer.py`", "`runtime/outtake.py`"),
        ("::test_a_silent_worker_is_ended", "::test_a_noisy_worker_is_ended"),
        ("`tests/sweeps/test_owner_gone.py::", "`tests/sweeps/test_broom.py::"),
        ("`commits_busy`", "`commits_lazy`"),
        ("`runtime/sweeps/worker_dead.py`", "`runtime/sweeps/worker_silent.py`"),
    ):
        assert right in text
        assert len(list(unproven(text.replace(right, wrong)))) > sound


# -- GLOSSARY, DATA, STATES ------------------------------------------------------------------------------------------


def first_cells(text: str, header: str) -> tuple[str, ...]:
    return tuple(row[0].strip("*") for row in rows(text, header))


def test_the_glossary_has_the_words_of_the_design() -> None:
    text = text_of("docs/GLOSSARY.md")
    assert first_cells(text, "word") == WORDS
    assert first_cells(text, "verb") == VERBS
    parts = first_cells(text.partition("## Words for the parts")[2], "word")
    assert list(parts) == sorted(parts)
    assert not set(parts) & {*WORDS, *VERBS}
    assert [status for status in Status if f"`{status}`" not in text] == []


def test_the_glossary_forbids_what_the_house_forbids() -> None:
    (line,) = (line for line in text_of("docs/GLOSSARY.md").splitlines() if line.startswith("Never names"))
    assert set(re.findall(r"\w+", line.partition(": ")[2])) == FORBIDDEN - {"utils"}


@pytest.mark.parametrize("database", DATABASES)
def test_the_page_on_the_tables_has_every_table_and_column(database: str) -> None:
    text = text_of("docs/DATA.md")
    told: dict[str, set[str]] = {}
    for part in re.split(r"^## `", text, flags=re.MULTILINE)[1:]:
        told[part.partition("`")[0]] = {name for row in rows(part, "column") for name in named(row[0])}
    assert {name: set(table.columns) for name, table in schema(database).items() if name not in OWN_TABLES} == told
    assert {name for row in rows(text, "table") for name in named(row[0])} == set(OWN_TABLES)


def test_the_page_on_states_is_what_the_kernel_generates() -> None:
    assert text_of("docs/STATES.md") == generate.states(), "run `make docs`"


# -- README and all pages --------------------------------------------------------------------------------------------


def test_the_page_on_metrics_is_what_the_catalogue_generates() -> None:
    assert text_of("docs/reference/metrics.md") == generate.metrics(), "run `make docs`"


def test_the_page_on_commands_is_what_the_command_line_generates() -> None:
    assert text_of("docs/reference/commands.md") == generate.commands(), "run `make docs`"


def test_the_readme_shows_exactly_two_commands() -> None:
    shell = [content for language, content in blocks(text_of("README.md")) if language in ("", "sh", "bash", "console")]
    assert "".join(shell).split("\n")[:-1] == ["make demo", "make test"]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))


def verbs() -> set[str]:
    return {name for name in whole_app() if not name.startswith("-")}


def untrue(page: str, text: str) -> Iterator[str]:
    """Files, modules, commands and defaults that a page names and that do not exist."""
    readers = {CONFIG_FILE, *re.findall(r"^# (\w+\.py)$", text, re.MULTILINE)}  # files that the reader writes
    for span in spans(text):
        if span in readers:
            continue
        if re.fullmatch(r"[\w./-]+\.(py|sql|md|toml|yml)", span) and file_named(span) is None:
            yield f"{page} names the file {span}"
        if re.fullmatch(r"perdure(\.(?!db$)\w+)+", span) and not module_or_name(span):
            yield f"{page} names {span}"
        if (verb := re.match(r"perdure ([a-z][a-z-]*)", span)) and verb[1] not in verbs():
            yield f"{page} names the command {span}"
        if re.fullmatch(r"make \w+.*", span) and span.split()[1] not in targets():
            yield f"{page} names the command {span}"
        if (variable := re.fullmatch(r"\$?(PERDURE_[A-Z_]+)", span)) and variable[1] not in variables_of_source():
            yield f"{page} names the variable {span}"
        if re.fullmatch(r"(?!PERDURE_)[A-Z]+(_[A-Z]+)*_(SECONDS|BYTES|EVENTS|ROWS|DEATHS)", span) and not hasattr(
            limits, span
        ):
            yield f"{page} names the default {span}"
    for target in links(text):
        place = target.partition("#")[0]
        if place and "://" not in place and not (ROOT / page).parent.joinpath(place).exists():
            yield f"{page} links to {target}"


def module_or_name(dotted: str) -> bool:
    """Whether ``perdure.a.b`` is a module, a name in a module, or what the schema on PostgreSQL has by that name."""
    parts = dotted.split(".")[1:]
    for cut in range(len(parts), -1, -1):
        home = PACKAGE.joinpath(*parts[:cut])
        path = home.with_suffix(".py") if home.with_suffix(".py").exists() else home / "__init__.py"
        if path.exists():
            names, rest = parsed(path), ".".join(parts[cut:])
            if not rest or rest in names.names or re.search(rf"^    \"{re.escape(rest)}\",$", names.text, re.MULTILINE):
                return True
    return len(parts) == 1 and parts[0] in made_by_sql()


@cache
def made_by_sql() -> set[str]:
    """The tables, types, views and functions of the schema."""
    texts = [path.read_text(encoding="utf-8") for path in (PACKAGE / "store" / "sql" / "postgres").rglob("*.sql")]
    return set(re.findall(r"^CREATE [A-Z ]+ perdure\.(\w+)", "\n".join(texts), re.MULTILINE))


def test_what_the_pages_name_exists() -> None:
    every = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in pages()]
    assert [found for page, text in every for found in untrue(page, text)] == []


def test_a_page_that_names_what_is_not_there_is_found() -> None:
    for wrong in (
        "`perdure absent`", "`kernel/absent.py`", "`perdure.absent`", "`perdure.engine.Motor`", "`make absent`",
        "`ABSENT_SECONDS`", "`$PERDURE_ABSENT`", "[there](absent.md)",
    ):  # fmt: skip
        assert list(untrue("README.md", wrong)), wrong


def test_what_the_texts_of_errors_tell_people_to_run_exists() -> None:
    told = re.compile(r"`(perdure|make) ([a-z][a-z-]*)")
    found = {(m.name, *pair) for m in modules("src") for pair in told.findall(m.text)}
    known = {"perdure": verbs(), "make": targets()}
    assert [one for one in sorted(found) if one[2] not in known[one[1]]] == []


def test_no_page_names_a_machine_of_ours_or_a_host() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in pages()}
    wrong = re.compile(r"(^|[\s`(])/(work|root|home|Users|opt)/|\blocalhost:\d|pypi\.org|registry\.", re.MULTILINE)
    assert [path.name for path, text in texts.items() if wrong.search(text)] == []


def test_every_decision_is_listed_and_says_what_was_given_up() -> None:
    folder = DOCS / "decisions"
    listed = set(links((folder / "README.md").read_text(encoding="utf-8")))
    decisions = {path.name for path in folder.glob("*.md")} - {"README.md"}
    assert listed == decisions
    for name in decisions:
        text = (folder / name).read_text(encoding="utf-8")
        heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert heads[1:] == ["Why", "Given up"], name
        assert len(text.split()) <= 450, name
