"""Which store a URL means, and the codecs and the offload that are put in front of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import Computer
from perdure.errors import DefinitionError, InvalidInput, InvalidUrl
from perdure.kernel.plain import shown
from perdure.store.base import Store

if TYPE_CHECKING:
    from perdure.store.sealed.codec import Codec
    from perdure.store.sealed.offload import Offload

_SCHEME = r"([a-z][a-z0-9+.-]{0,19})://"
_CODEC = ("name", "hides", "required", "seal", "open", "former")
_OFFLOAD = ("above", "grace", "put", "get", "old", "delete")


def store_for(url: str, machine: Computer) -> Store:
    """The store that ``url`` names, not opened yet; raises InvalidUrl."""
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        from perdure.store.sqlite.store import SqliteStore

        return SqliteStore(url, machine=machine)
    if scheme in ("postgresql", "postgres"):
        from perdure.store.postgres.store import PostgresStore

        return PostgresStore(url, machine=machine)
    known = re.match(_SCHEME, url, re.IGNORECASE)  # anything else may be a password
    raise InvalidUrl(
        f"no store is known for a URL that begins {f'with {known[1]!r}' if known else 'like this one'}; "
        "use sqlite:///file.db or postgresql://user@host/database"
    )


def without_password(url: str) -> str:
    """The URL of the database, without its user, password and options; a file with its whole path."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    if scheme == "sqlite" and place.startswith("/"):
        place = f"/{os.path.abspath(place[1:])}"
    return f"{scheme}://{place}"


def sealed(store: Store, codecs: Sequence[Codec], offload: Offload | None) -> Store:
    """The store behind these codecs and this offload; the store itself if there are none.

    Raises DefinitionError, and InvalidInput if the environment sets a limit wrongly.
    """
    if limits.WRONG_RECORDS:
        raise InvalidInput(" ".join(limits.WRONG_RECORDS))
    if offload is None and limits.PAYLOAD_BYTES > limits.INSIDE_PAYLOAD_BYTES:
        raise DefinitionError(
            f"PERDURE_PAYLOAD_BYTES allows {limits.PAYLOAD_BYTES:,} bytes, more than a database should keep in a row "
            f"({limits.INSIDE_PAYLOAD_BYTES:,}). Give the engine an offload, or lower the limit."
        )
    if not isinstance(codecs, list | tuple):
        raise DefinitionError(f"the codecs are {shown(codecs)}. Give a list, even for a single codec.")
    for one in codecs:
        _check(one, _CODEC, "codec")
    if offload is not None:
        _check(offload, _OFFLOAD, "offload")
    if not codecs and offload is None:
        return store
    from perdure.store.sealed.blob import Blobs
    from perdure.store.sealed.seal import Seal
    from perdure.store.sealed.store import SealedStore

    return SealedStore(store, Seal(codecs), None if offload is None else Blobs(offload))


def _check(given: object, parts: Iterable[str], noun: str) -> None:
    if missing := [part for part in parts if not hasattr(given, part)]:
        raise DefinitionError(f"{shown(given)} is no {noun}: it lacks {', '.join(missing)}. See perdure.{noun}.")
