"""Settings: database, codecs, offload and policies by environment and file, the same for engines and commands."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, json

from perdure.errors import DefinitionError
from perdure.kernel.breaker import BreakerSettings
from perdure.kernel.missing import MissingRule
from perdure.kernel.missing import rules_of as rules_for_missing
from perdure.kernel.outage import OutageRule, rules_of
from perdure.kernel.policy import POLICIES, Policies
from perdure.kernel.sweep_pass import paces

if TYPE_CHECKING:
    from perdure.kernel.retention import RetentionRule
    from perdure.store.sealed.codec import Codec
    from perdure.store.sealed.offload import Offload

SEAL = "PERDURE_SEAL"
CONFIG = "PERDURE_CONFIG"
CONFIG_FILE = "perdure.toml"
_SECTIONS = ("policies", "breakers", "checks", "outages", "sweeps", "missing", "retention")
URL = "PERDURE_URL"
DEFAULT_URL = "sqlite:///perdure.db"
"""The database of engines and commands that are given none: a file in the folder where the program runs."""
RETENTION = "PERDURE_RETENTION"
"""The variable of the environment that sets rules of retention, as JSON."""


def database() -> str:
    """The URL of the database: what PERDURE_URL names, or else the default."""
    return os.environ.get(URL) or DEFAULT_URL


def sealing() -> tuple[Sequence[Codec], Offload | None]:
    """``codecs`` and ``offload`` of the module (``shop.seal``) or file (``./seal.py``) that PERDURE_SEAL names.

    Empty if PERDURE_SEAL is not set. Raises DefinitionError if the module cannot be imported, or defines neither.
    """
    name = os.environ.get(SEAL)
    if not name:
        return (), None
    module = _module(name)
    codecs, offload = getattr(module, "codecs", None), getattr(module, "offload", None)
    if codecs is None and offload is None:
        raise DefinitionError(f"{SEAL} names {name!r}, which defines neither `codecs` nor `offload`. Define one there.")
    return codecs or (), offload


def policies(own: Mapping[str, Any] | None = None) -> Policies:
    """The policies of the program itself, of ``perdure.toml`` and of PERDURE_POLICIES; later ones count more.

    The file stands in the folder where the program runs, or where PERDURE_CONFIG says; PERDURE_POLICIES is JSON, and
    may be a list of several such, of which later ones count more. Raises DefinitionError if one cannot be read or makes
    no sense.
    """
    file, found = _config()
    of_file = _mapping(found.get("policies", {}), file)
    told = _decoded(POLICIES, _EXAMPLE, {})
    of_environment = [(POLICIES, _mapping(one, POLICIES)) for one in (told if isinstance(told, list) else [told])]
    return Policies((("the program", own or {}), (file, of_file), *of_environment))


def breakers(own: Mapping[str, Any] | None = None) -> BreakerSettings:
    """What the program itself and ``perdure.toml`` set for circuit breakers, by name; raises DefinitionError."""
    file, found = _config()
    return BreakerSettings((("the program", own or {}), (file, found.get("breakers", {}))))


def outages(own: Mapping[str, Any] | None = None) -> dict[str, OutageRule]:
    """The rules for outages of the program itself and of ``perdure.toml``, by kind; raises DefinitionError."""
    file, found = _config()
    return {**rules_of("the program", own or {}), **rules_of(file, found.get("outages", {}))}


def retention(own: Any = ()) -> tuple[RetentionRule, ...]:
    """The rules of PERDURE_RETENTION, of ``perdure.toml`` and of the program itself: earlier ones count more.

    PERDURE_RETENTION is a list in JSON. Raises DefinitionError.
    """
    file, found = _config()
    of_environment = _decoded(RETENTION, _RULE_EXAMPLE, ())
    sources = ((RETENTION, of_environment), (file, found.get("retention", ())), ("the program", own))
    if all(given == () for _, given in sources):
        return ()
    from perdure.kernel import retention as kernel_retention

    return tuple(rule for source, given in sources for rule in kernel_retention.rules_of(source, given))


def worker_retention(own: Any, seconds: float) -> tuple[RetentionRule, ...]:
    """The rules of a worker, if it has any: what none of them fits is removed so many ``seconds`` after its end."""
    rules = retention(own)
    if not rules:
        return ()
    from perdure.kernel.retention import RetentionRule

    return (*rules, RetentionRule(after=seconds))


def check_rate(own: float) -> float:
    """Processes a second that checks examine in the background: ``rate`` of ``[checks]``, or the program's own number.

    Raises DefinitionError.
    """
    file, found = _config()
    section = found.get("checks", {})
    if not isinstance(section, dict) or section.keys() - {"rate"}:
        raise DefinitionError(f"the checks of {file} make no sense. Write [checks] and, below it, rate = 50.")
    rate = section.get("rate", own)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1_000_000:
        raise DefinitionError(f"the checks of {file} have rate = {rate!r:.100}. Give processes a second, 0 for none.")
    return float(rate)


def sweep_paces(own: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Seconds between two passes of sweeps, of the program itself and of ``perdure.toml``; raises DefinitionError."""
    file, found = _config()
    return {**paces("the program", own or {}), **paces(file, found.get("sweeps", {}))}


def missing(own: Mapping[str, Any] | None = None) -> dict[str, MissingRule]:
    """The kinds that begin again by themselves, of the program and of ``perdure.toml``; raises DefinitionError."""
    file, found = _config()
    return {**rules_for_missing("the program", own or {}), **rules_for_missing(file, found.get("missing", {}))}


def _config() -> tuple[str, Mapping[str, Any]]:
    """The file that sets things, and what it sets."""
    name = os.environ.get(CONFIG) or CONFIG_FILE
    file = Path(name)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if os.environ.get(CONFIG):
            raise DefinitionError(f"{CONFIG} names {str(file)!r}, which does not exist") from error
        return name, {}
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    import tomllib

    try:
        found = tomllib.loads(text)
    except ValueError as error:
        raise _unreadable(file, error) from error
    if unknown := found.keys() - set(_SECTIONS):
        raise DefinitionError(
            f"{file} sets {', '.join(sorted(unknown))}, which means nothing here; it may set {', '.join(_SECTIONS)}"
        )
    return name, found


def _unreadable(file: Path, error: Exception) -> DefinitionError:
    return DefinitionError(f"{file} cannot be read: {error}. Correct it, or name another file by {CONFIG}.")


def _decoded(variable: str, example: str, default: Any) -> Any:
    """What a variable of the environment says in JSON; the default if it is not set."""
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        return json.decode(text)
    except DecodeError as error:
        raise DefinitionError(f"{variable} is not JSON ({error}). Write {example}.") from error


def _mapping(found: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise DefinitionError(f"the policies of {source} have no names. Write {_EXAMPLE}.")
    return found


_EXAMPLE = '{"order.*.charge": {"attempts": 5, "timeout": 10}}'
_RULE_EXAMPLE = '[{"kind": "order-*", "after": "30d", "archive": "archive"}]'


def _module(name: str) -> ModuleType:
    try:
        return _file_module(Path(name).resolve()) if name.endswith(".py") else importlib.import_module(name)
    except Exception as error:  # whatever the module raises when it is run
        raise DefinitionError(
            f"{SEAL} names {name!r}, which does not import: {type(error).__name__}: {error}. "
            "Run from the directory that holds it, install it, or give the path of a file, like ./seal.py."
        ) from error


def _file_module(path: Path) -> ModuleType:
    known = f"perdure seal {path}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[known] = module
    return sys.modules[known]
