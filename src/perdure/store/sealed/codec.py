"""Codecs: what a payload goes through before it is stored, and back through when it is read.

A codec must be deterministic: the same payload in the same place seals to the same bytes, or a commit that is sent
again after an unknown outcome would not be recognised (rule 5).
"""

from __future__ import annotations

import binascii
import hmac
import threading
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perdure import limits
from perdure.errors import DefinitionError, UnreadablePayload

KEY_BYTES = 32
NONCE_BYTES = 12
SLACK_BYTES = 64 * 1024
"""How many bytes may surround the largest payload, so that it can still be compressed."""


class Codec(Protocol):
    """One link of the chain. ``name`` is stored with what it seals; ``hides`` says that others cannot read that."""

    @property
    def name(self) -> str:
        """What this codec is called in stored payloads; never changed, at most 255 bytes."""

    @property
    def hides(self) -> bool:
        """Whether nobody without this codec can read what it seals, or check a guess of it."""

    @property
    def required(self) -> bool:
        """Whether a payload that did not go through it is refused."""

    def seal(self, plain: bytes, context: bytes) -> tuple[bytes, bytes] | None:
        """A note (at most 255 bytes, readable by all) and the sealed bytes; None to leave the payload as it is.

        ``context`` names the place where the payload is kept: what is opened in another place must be refused.
        """

    def open(self, note: bytes, body: bytes, context: bytes) -> bytes:
        """The plain bytes; raises UnreadablePayload if they cannot be restored."""

    def former(self) -> Sequence[Codec]:
        """This codec in its possible earlier configurations, for a payload that must be sealed as it was then."""


class Zstd:
    """Compresses payloads of at least ``above`` bytes with Zstandard, where that makes them a tenth smaller.

    With ``seals`` false nothing is compressed any more (or not yet), only decompressed.
    """

    name = "zstd"
    hides = False
    required = False

    def __init__(self, *, level: int = 3, above: int = 512, seals: bool = True) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise _not_installed("Zstd") from error
        self._library: Any = zstandard
        self._level = level
        self._above = above
        self._seals = seals
        self._own = threading.local()  # a compressor must not be used by two threads at once
        self._compressor()

    def _compressor(self) -> Any:
        made = getattr(self._own, "compressor", None)
        if made is None:
            try:
                made = self._own.compressor = self._library.ZstdCompressor(level=self._level)
            except ValueError as error:
                raise DefinitionError(f"Zstd cannot compress at level {self._level}: {error}. Use 1 to 19.") from None
        return made

    def seal(self, plain: bytes, context: bytes) -> tuple[bytes, bytes] | None:
        """Compress, if it is worth it."""
        if not self._seals or not self._above <= len(plain) <= limits.PAYLOAD_BYTES + SLACK_BYTES:
            return None
        body = self._compressor().compress(plain)
        return (b"", body) if len(body) * 10 <= len(plain) * 9 else None

    def open(self, note: bytes, body: bytes, context: bytes) -> bytes:
        """Decompress, at most as much as a payload may be."""
        most = limits.PAYLOAD_BYTES + SLACK_BYTES
        try:
            size = self._library.get_frame_parameters(body).content_size
            if size > most:  # or the size is unknown: we always write it
                raise UnreadablePayload(
                    f"it says that it takes {size:,} bytes when decompressed, over the limit of {most:,}. If it was "
                    "stored under a greater limit, set PERDURE_PAYLOAD_BYTES to that; else it was tampered with."
                )
            decompressor = self._library.ZstdDecompressor()
            plain: bytes = decompressor.decompress(body, max_output_size=most, allow_extra_data=False)
        except self._library.ZstdError as error:
            raise UnreadablePayload(f"it cannot be decompressed ({error}): it was damaged; restore it") from None
        return plain

    def former(self) -> Sequence[Codec]:
        """This codec as it was while it still compressed."""
        return () if self._seals else (Zstd(level=self._level, above=self._above),)

    def __repr__(self) -> str:
        return f"Zstd(level={self._level}, above={self._above}, seals={self._seals})"


class AesGcm:
    """Encrypts with AES-256-GCM. ``keys`` gives secrets by key id: the first seals, all of them open.

    A secret is 32 bytes, or the same as base64 text. Both the key and the nonce of a payload are derived (HMAC-SHA-512
    and -256) from the secret, the place where it is kept and its own bytes: so sealing is deterministic, and no key
    is used often enough to wear out. With ``seals`` false nothing is encrypted yet, only opened: for the first step of
    a roll-out. With ``required`` true a payload that is not encrypted is refused.

    Raises DefinitionError if there is no key, or if a secret is not valid.
    """

    name = "aes-gcm"

    def __init__(self, keys: Mapping[str, str | bytes], *, seals: bool = True, required: bool = False) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise _not_installed("AesGcm") from error
        self._cipher: Any = AESGCM
        self._invalid: Any = InvalidTag
        self._secrets = {_note(id): _secret(id, secret) for id, secret in keys.items()}
        if not self._secrets:
            raise DefinitionError("AesGcm was given no key. Give it at least one, the one that seals first.")
        self._first = next(iter(self._secrets))
        self.hides = seals
        self.required = required

    @classmethod
    def from_text(cls, text: str, *, seals: bool = True, required: bool = False) -> AesGcm:
        """Read keys from text like ``2026b:BASE64,2026a:BASE64``, as an environment variable holds them."""
        keys: dict[str, str | bytes] = {}
        for part in filter(None, map(str.strip, text.split(","))):
            id, colon, secret = part.partition(":")
            if not colon:
                raise DefinitionError("a key has no id. Write id:base64, separated by commas.")
            if id in keys:
                raise DefinitionError(f"there are two keys with the id {id!r}. Give each its own.")
            keys[id] = secret
        return cls(keys, seals=seals, required=required)

    def seal(self, plain: bytes, context: bytes) -> tuple[bytes, bytes] | None:
        """Encrypt with the first key."""
        if not self.hides:
            return None
        note = self._first
        secret, pepper = self._derived(note, context)
        nonce = hmac.digest(pepper, plain, "sha256")[:NONCE_BYTES]
        return note, nonce + self._cipher(secret).encrypt(nonce, plain, context)

    def open(self, note: bytes, body: bytes, context: bytes) -> bytes:
        """Decrypt with the key of that id."""
        if note not in self._secrets:
            known = ", ".join(repr(id.decode()) for id in self._secrets)
            raise UnreadablePayload(
                f"it is encrypted with the key {note.decode(errors='replace')!r}, and here are only {known}. "
                "Add that key behind the first one; if its process is broken by now, run `perdure retry` then."
            )
        secret, _ = self._derived(note, context)
        try:
            plain: bytes = self._cipher(secret).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], context)
        except (self._invalid, ValueError):
            raise UnreadablePayload(
                f"it does not fit the key {note.decode()!r} and its place: it was tampered with, moved from another "
                "place, or the key is another one under the same id. Restore the row from a backup, or correct the key."
            ) from None
        return plain

    def _derived(self, note: bytes, context: bytes) -> tuple[bytes, bytes]:
        """The key of one place, and the secret from which its nonces are made."""
        both = hmac.digest(self._secrets[note], b"perdure payload 1\0" + context, "sha512")
        return both[:KEY_BYTES], both[KEY_BYTES:]

    def former(self) -> Sequence[Codec]:
        """One codec for each other key, with that key as the first."""
        others = [id for id in self._secrets if id != self._first or not self.hides]
        return [
            AesGcm({one.decode(): self._secrets[one], **{id.decode(): key for id, key in self._secrets.items()}})
            for one in others
        ]

    def __repr__(self) -> str:
        return f"AesGcm(keys={[id.decode() for id in self._secrets]}, seals={self.hides}, required={self.required})"


def _note(id: str) -> bytes:
    if not id.isprintable() or not 0 < len(note := id.encode()) < 256:
        raise DefinitionError("the id of a key is empty, too long or not printable. Use a short name, like 2026a.")
    return note


def _secret(id: str, secret: str | bytes) -> bytes:
    raw = secret
    if isinstance(secret, str):
        text = secret.strip().rstrip("=")
        text += "=" * (-len(text) % 4)
        try:
            raw = urlsafe_b64decode(text) if set("-_") & set(text) else b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            raw = b""
    if not isinstance(raw, bytes) or len(raw) != KEY_BYTES:
        raise DefinitionError(
            f"the secret of key {id!r} is not {KEY_BYTES} bytes, or not the base64 of that many. "
            "Make one with `openssl rand -base64 32`."
        )
    return raw


def _not_installed(what: str) -> DefinitionError:
    return DefinitionError(f"{what} needs libraries that are not installed. Run: pip install 'perdure[seal]'")
