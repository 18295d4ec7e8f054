"""The lines of our log: what comes from outside stays in the line that tells of it."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Tamed(logging.Filter):
    """Writes line feeds and other control characters of the values in a record as escapes.

    Keys, names and errors are other people's: with a line feed they could forge a line of ours, or steer a terminal. A
    stack, which a message announces at its end, keeps its lines, each behind a margin.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with its values tamed."""
        if isinstance(record.args, tuple):
            stack = str(record.msg).endswith("\n%s")
            last = len(record.args) - 1
            record.args = tuple(
                tamed(one, lines=stack and place == last) if isinstance(one, str | BaseException) else one
                for place, one in enumerate(record.args)
            )
        return True


def tamed(value: str | BaseException, *, lines: bool = False) -> str:
    """A text without control characters; with ``lines`` its line feeds stay, and no line begins at the margin."""
    if lines:
        return "\n".join(f"    {tamed(line)}" for line in str(value).split("\n"))
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], str(value))


log = logging.getLogger("perdure")
log.addFilter(Tamed())
