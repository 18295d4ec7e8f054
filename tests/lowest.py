"""The lowest versions that pyproject.toml allows of everything Perdure needs, as constraints for pip.

``make lowest`` runs the quick tests with them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NEED = re.compile(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)(?:\s*;.*)?")


def lowest(project: dict[str, Any]) -> Iterator[str]:
    """Each need of the project and its extras, pinned to its floor; raises ValueError if one has none."""
    for need in chain(project["dependencies"], *project["optional-dependencies"].values()):
        if need.startswith(f"{project['name']}["):
            continue
        found = NEED.fullmatch(need)
        if found is None:
            raise ValueError(f"{need!r} has no floor. Write it as name>=1.2.")
        yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    with (ROOT / "pyproject.toml").open("rb") as file:
        print("\n".join(lowest(tomllib.load(file)["project"])))
