"""Mail: alerts to an address, by the mail server that the environment of a worker names.

``PERDURE_SMTP`` is ``smtp://user@mail.example.org:587?from=perdure@example.org``: the connection is encrypted by
STARTTLS before anything is said, or from the beginning with ``smtps://``; ``tls=no`` does without, and then no login is
possible. The password stands in ``PERDURE_SMTP_PASSWORD`` alone, and is never shown.
"""

from __future__ import annotations

import os
import re
import smtplib
import socket
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from urllib.parse import parse_qsl, unquote, urlsplit

from perdure import limits
from perdure.authoring.webhook import header_text
from perdure.errors import InvalidInput
from perdure.logs import tamed

SERVER = "PERDURE_SMTP"
PASSWORD = "PERDURE_SMTP_PASSWORD"
EXAMPLE = "smtp://user@mail.example.org:587?from=perdure@example.org"
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
_PORTS = {"smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailServer:
    """A mail server: where it is, how the connection is encrypted (``smtps``, ``starttls``), who logs in and sends."""

    host: str
    port: int
    smtps: bool
    starttls: bool
    user: str
    sender: str


def checked_address(address: str) -> str:
    """``address`` if mail can be sent to it; raises InvalidInput."""
    if not _ADDRESS.fullmatch(address):
        raise InvalidInput(f"{address!r:.80} is no address for mail. Write one like mailto:ops@example.org.")
    return address


def mail_server() -> MailServer:
    """The server that the environment names; raises InvalidInput, which does not show what stands there."""
    given = os.environ.get(SERVER)
    if not given:
        raise InvalidInput(f"no mail server is set. Set {SERVER} in the environment of each worker: {EXAMPLE}.")
    parts = urlsplit(given)
    options = dict(parse_qsl(parts.query))
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
        right = bool(port and parts.hostname) and not options.keys() - {"from", "tls"} and parts.path in ("", "/")
    except ValueError:
        port, right = 0, False
    user, tls = unquote(parts.username or ""), options.get("tls", "yes")
    if not right or tls not in ("yes", "no"):
        raise InvalidInput(f"{SERVER} is no URL of a mail server. Write {EXAMPLE}; tls=no leaves out encryption.")
    if parts.password is not None:
        raise InvalidInput(f"{SERVER} holds a password, where it may be shown. Set it as {PASSWORD} instead.")
    smtps = parts.scheme == "smtps"
    if user and not smtps and tls == "no":
        raise InvalidInput(f"{SERVER} names a user and tls=no: the password would be sent in the clear. Leave out one.")
    sender = options.get("from") or (user if "@" in user else f"perdure@{socket.gethostname()}")
    return MailServer(parts.hostname or "", port, smtps, not smtps and tls == "yes", user, sender)


def send(address: str, id: str, subject: str, text: str) -> None:
    """Send a mail, and return once the server has taken it; blocks. Raises InvalidInput, OSError, SMTPException.

    ``id`` becomes its Message-ID: a mail that comes again has the same.
    """
    server = mail_server()
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = server.sender, address, tamed(subject)
    mail["Message-ID"] = f"<{re.sub(r'[^A-Za-z0-9.-]', '.', header_text(id))}@perdure>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(text)
    with _connected(server) as connection:
        if server.starttls:
            connection.starttls(context=ssl.create_default_context())
        if server.user:
            connection.login(server.user, os.environ.get(PASSWORD, ""))
        connection.send_message(mail)


def _connected(server: MailServer) -> smtplib.SMTP:
    here, seconds = socket.gethostname(), limits.WEBHOOK_SILENT_SECONDS
    if server.smtps:
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, local_hostname=here, timeout=seconds, context=context)
    return smtplib.SMTP(server.host, server.port, local_hostname=here, timeout=seconds)
