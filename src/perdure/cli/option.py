"""Options that several verbs share, each with its meaning said once."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

DEFAULT_URL = "sqlite:///perdure.db"

Url = Annotated[
    str,
    Parameter(
        name="--url",
        env_var="PERDURE_URL",
        help="The database: sqlite:///file.db or postgresql://user@host/database.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON, for programs.")]
Who = Annotated[str, Parameter(name="--who", help="Who asks; recorded. Default: your user name.")]
Why = Annotated[str, Parameter(name="--why", help="Why; recorded in the history.")]
References = Annotated[
    list[str],
    Parameter(name="process", help="Processes, each by its id, its key, or kind:key.", consume_multiple=True),
]
Reference = Annotated[str, Parameter(name="process", help="A process, by its id, its key, or kind:key.")]
