"""Imports inside functions: while a process runs, one may fail for want of a descriptor. So each has its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.house.tree import PACKAGE, Module, dotted, modules, planted

ALLOWED = {
    "authoring/registry.py module_of": "the modules of an application are loaded when a worker starts",
    "authoring/library.py with_library_kind": "one of them is claimed, and handed back if that fails; or a person asks",
    "authoring/workflow.py _check_schedule": "a workflow is declared",
    "authoring/undo.py undo_of": "a step is declared: two modules know each other there",
    "turns/sandbox/mentions.py _not_the_users": "a workflow is declared: its code is looked at",
    "turns/sandbox/overrides.py _function": "a gate is read from a pickle",
    "__init__.py __getattr__": "a program is imported, and names what it uses",
    "engine.py _made": "a worker starts",
    "engine.py within": "a program begins to start processes in transactions of its own",
    "engine.py rehearse": "a person or a test asks",
    "engine.py retention": "a program uses these verbs for the first time",
    "engine.py _remover": "a worker with rules starts, or a person asks",
    "client/client.py _finder": "a person asks: a query is read",
    "client/client.py _debounced": "a program starts something debounced for the first time",
    "client/handle.py fork": "a person asks",
    "client/client.py list": "a person asks",
    "client/handle.py status": "a person asks",
    "client/handle.py statuses": "a person asks",
    "client/handle.py trace": "a person asks",
    "kernel/names.py near": "a mistake is told; classes of machines import it, so that no turn does",
    "turns/eviction.py close": "code refuses to end: if that fails, it runs once more when the program ends",
    "runtime/sinks.py _sink": "a stream with a sink is there for the first time: if that fails, it is looked at again",
    "runtime/sinks.py _deliver": "a stream with a sink is there for the first time: if that fails, it is tried again",
    "cli/app.py app_for": "the command line starts",
    "cli/app.py _page": "a person asks for help",
    "cli/entry.py main": "the command line starts",
    "cli/version.py version": "a person asks",
    "cli/worker_process.py _loop_factory": "a worker starts, with uvloop or without",
    "cli/worker_process.py _registry": "a worker starts, with a library that may not be installed",
    "monitoring/monitor.py __init__": "an engine is made, with libraries that may not be installed",
    "monitoring/monitor.py committer": "an engine is made",
    "monitoring/monitor.py follow": "a worker starts",
    "monitoring/pages.py pages": "a worker starts, with a library that is there by then",
    "cli/worker.py demo": "the demonstration starts",
    "authoring/webhook.py _request": "a first notice is posted: if that fails, the step tries again as for any error",
    "settings.py _config": "an engine is made",
    "settings.py _module": "an engine is made",
    "settings.py retention": "an engine is made, and there are rules",
    "settings.py worker_retention": "an engine is made, and there are rules",
    "store/sealed/offload.py __init__": "an offload is made, of an extra that may not be installed",
    "store/sealed/codec.py __init__": "a codec is made, of an extra that may not be installed",
    "store/sqlite/backend.py in_transaction": "a program begins to start processes in transactions of its own",
    "store/postgres/in_transaction.py __init__": "the caller's connection is of that driver: it is imported already",
    "streaming/redis_sink.py __init__": "a sink is made, of an extra that may not be installed",
    "streaming/sink.py sink_for": "a sink is made: none needs the libraries of the others",
    "store/url.py sealed": "an engine is made",
    "store/url.py store_for": "an engine is made: neither store needs the driver of the other",
}
ALLOWED |= {
    f"client/groups.py {group}": "a program uses these verbs for the first time"
    for group in (
        *(
            "queues",
            "kinds",
            "recovery",
            "breakers",
            "outages",
            "alerts",
            "searches",
            "leaders",
            "clock",
            "streams",
            "schedules",
            "operations",
        ),
        *("checks", "archive", "reply_addresses"),
    )
}
ALLOWED |= {
    f"client/explaining/verbs.py {verb}": "a person asks" for verb in ("explain", "health", "board", "failures")
}
"""Functions that import, and when they do: never while a turn, a step or a commit is under way."""


def late_imports(module: Module) -> Iterator[str]:
    """The functions of a module in which something is imported."""
    late = [node.lineno for node in module.nodes(ast.Import, ast.ImportFrom)]
    late += [node.lineno for node in module.nodes(ast.Call) if dotted(node.func).rpartition(".")[2] in _IMPORTERS]
    for function in module.functions():
        if any(function.lineno <= line <= (function.end_lineno or 0) for line in late):
            yield function.name


_IMPORTERS = ("import_module", "__import__")


@cache
def found() -> set[str]:
    """All of them, but for what is only for tests."""
    files = [module for module in modules("src/perdure") if "testing" not in module.path.parts]
    return {f"{module.path.relative_to(PACKAGE)} {name}" for module in files for name in late_imports(module)}


def test_nothing_is_imported_on_the_path_of_a_running_process_that_has_no_reason() -> None:
    assert sorted(found() - set(ALLOWED)) == [], "move it to the top of its file, or to the start of the worker"


def test_every_reason_to_import_late_is_still_needed() -> None:
    assert sorted(set(ALLOWED) - found()) == []


def test_a_late_import_is_found_where_it_is_planted() -> None:
    nested = "def f():\n    def g():\n        import json\n"
    assert list(late_imports(planted(nested))) == ["f", "g"]
    assert list(late_imports(planted("async def f():\n    return importlib.import_module('json')\n"))) == ["f"]
    assert not list(late_imports(planted("import json\n\n\ndef f(): ...\n")))
