"""A mail server on loopback: it encrypts (STARTTLS or SMTPS), lets one user log in, and keeps what it has taken."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "127.0.0.1"


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return files


class SmtpServer:
    """``mails`` are what came, each with whether its connection was encrypted; ``refuses`` answers 451 to each."""

    user, password = "perdure", "s3cret-of-the-mail"

    def __init__(self, folder: Path, *, smtps: bool = False) -> None:
        self.certificate, self._key = certified(folder)
        self.smtps = smtps
        self.mails: list[tuple[EmailMessage, bool]] = []
        self.refuses = False
        self._talks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        context = self._context() if self.smtps else None
        self._server = await asyncio.start_server(self._connected, HOST, 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        await asyncio.gather(*self._talks, return_exceptions=True)

    @property
    def url(self) -> str:
        """How the environment names it."""
        return f"smtp{'s' * self.smtps}://{self.user}@{HOST}:{self.port}?from=perdure@example.org"

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self._key)
        return context

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
            self._talks.discard(task)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        known, encrypted = False, self.smtps
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).strip():
            verb = line[:4].upper()
            if verb == b"EHLO":
                offers = b"250-here\r\n250 AUTH PLAIN\r\n" if encrypted else b"250-here\r\n250 STARTTLS\r\n"
                writer.write(offers)
            elif line.upper() == b"STARTTLS":
                writer.write(b"220 go on\r\n")
                await writer.drain()
                await writer.start_tls(self._context())
                encrypted = True
            elif verb == b"AUTH":
                known = base64.b64decode(line.split()[2]) == f"\0{self.user}\0{self.password}".encode()
                writer.write(b"235 welcome\r\n" if known else b"535 who are you\r\n")
            elif verb == b"DATA" and known:
                writer.write(b"354 say it\r\n")
                text = await reader.readuntil(b"\r\n.\r\n")
                if not self.refuses:
                    self.mails.append((message_from_bytes(text[:-5], policy=policy.default), encrypted))
                writer.write(b"451 not now\r\n" if self.refuses else b"250 taken\r\n")
            elif verb == b"QUIT":
                writer.write(b"221 bye\r\n")
                await writer.drain()
                return
            else:
                writer.write(b"250 well\r\n" if known or verb == b"RSET" else b"530 log in first\r\n")
