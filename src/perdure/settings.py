"""Settings: the database, codecs and offload that the environment names, the same for engines and commands."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from perdure.errors import DefinitionError
from perdure.store.sealed.codec import Codec
from perdure.store.sealed.offload import Offload

SEAL = "PERDURE_SEAL"
URL = "PERDURE_URL"
DEFAULT_URL = "sqlite:///perdure.db"
"""The database of engines and commands that are given none: a file in the folder where the program runs."""


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
