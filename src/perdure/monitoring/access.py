"""Who may ask a worker's monitoring server: whoever knows the token; where there is none, this machine alone.

The token stands in ``PERDURE_METRICS_TOKEN`` and nowhere else, and is never shown. A caller sends it as
``Authorization: Bearer …``, as Prometheus does.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from ipaddress import ip_address

from perdure.errors import DefinitionError

TOKEN = "PERDURE_METRICS_TOKEN"
LEAST_CHARACTERS = 16


class Access:
    """What is asked of a request to a server at ``host``, with the token if there is one.

    Raises DefinitionError for a token that is easily guessed or cannot be sent, and for a server without one that
    others than this machine could reach.
    """

    def __init__(self, host: str, token: str) -> None:
        plain = token.isascii() and token.isprintable() and " " not in token
        if token and not (plain and len(token) >= LEAST_CHARACTERS):
            raise DefinitionError(
                f"{TOKEN} is too short or has characters that cannot be sent: give at least {LEAST_CHARACTERS}"
                " printable ASCII characters without spaces, such as those of `openssl rand -hex 32`"
            )
        if not token and not _is_here(host):
            raise DefinitionError(
                f"metrics at {host} could be read by whoever reaches this machine. Set {TOKEN}, and let Prometheus"
                " send it (authorization: credentials_file: …); or leave out --metrics-host"
            )
        self._expected = f"Bearer {token}".encode() if token else None

    @property
    def by_token(self) -> bool:
        """Whether a token is asked for."""
        return self._expected is not None

    def admits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers, their names in small letters, comes from one who may ask.

        Without a token it must name this machine as its host: a page in a browser of this machine, whose own name was
        made to point here, does not.
        """
        if self._expected is not None:
            return hmac.compare_digest(headers.get(b"authorization", b""), self._expected)
        host = headers.get(b"host")
        return host is None or _is_here(_without_port(host.decode("ascii", "replace")))


def access_of_environment(host: str) -> Access:
    """Access by the token in the environment; raises like :class:`Access`."""
    return Access(host, os.environ.get(TOKEN, ""))


def _is_here(host: str) -> bool:
    """Whether a host's name or address can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
