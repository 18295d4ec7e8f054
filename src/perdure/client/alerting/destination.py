"""A destination of alerts: the log, a URL to which they are posted, or an address for mail."""

from __future__ import annotations

import asyncio
from smtplib import SMTPResponseException
from typing import Any
from urllib.parse import urlsplit

from msgspec import json
from msgspec.structs import asdict

from perdure import limits
from perdure.authoring import webhook
from perdure.client.alerting import mail
from perdure.client.view import instant
from perdure.errors import InvalidInput, PerdureError
from perdure.exhaustion import exhausted
from perdure.futures import in_thread
from perdure.kernel.alerting import AlertMessage
from perdure.logs import logger
from perdure.streaming.sink import place_of

LOG = "log"
MAIL = "mailto:"
log = logger("alert")


def checked_destination(to: Any) -> str:
    """``to`` if alerts can be sent there; raises InvalidInput, which shows no URL: it may hold a secret."""
    if to == LOG:
        return LOG
    if isinstance(to, str) and to.startswith(MAIL):
        return MAIL + mail.checked_address(to.removeprefix(MAIL))
    if not isinstance(to, str) or urlsplit(to).scheme not in ("http", "https"):
        raise InvalidInput("what was given is no place for alerts. Give 'log', 'https://…' or 'mailto:…'.")
    return webhook.checked(to)


def shown_destination(to: str) -> str:
    """The destination for people, without what may be secret."""
    return to if to == LOG or to.startswith(MAIL) else place_of(to)


async def delivered(to: str, message: AlertMessage) -> str:
    """Send a message; the answer is why it was not taken, empty if it was. It shows nothing that may be secret."""
    try:
        async with asyncio.timeout(limits.ALERT_DELIVERY_SECONDS):
            await _deliver(to, message)
    except TimeoutError:
        return f"{shown_destination(to)} did not answer in time"
    except SMTPResponseException as error:
        return f"{shown_destination(to)}: the mail server has answered {error.smtp_code} ({type(error).__name__})"
    except PerdureError as error:
        return str(error)
    except (OSError, ValueError) as error:  # what smtplib raises is an OSError; a password that is not ASCII is none
        return f"{shown_destination(to)} cannot be reached: {type(error).__name__}"
    except RuntimeError as error:
        if (what := exhausted(error)) is None:
            raise
        return f"{shown_destination(to)} cannot be told: the system refuses {what}"
    return ""


async def _deliver(to: str, message: AlertMessage) -> None:
    if to == LOG:
        extra = {"alert": message.when, "rule": message.rule, "status": message.status}
        log.warning("%s: %s", _title(message), message.text, extra=extra)
    elif to.startswith(MAIL):
        subject = f"[perdure] {_title(message)}: {message.text}"
        subject = subject if len(subject) <= 150 else f"{subject[:149]}…"
        await in_thread(mail.send, to.removeprefix(MAIL), message.id, subject, _letter(message))
    else:
        status = await in_thread(webhook.request, to, _body(message), message.id)
        if not 200 <= status < 300:
            raise webhook.Undelivered(f"{shown_destination(to)} answered with status {status}")


def _title(message: AlertMessage) -> str:
    said = {"firing": "", "resolved": " is resolved"}.get(message.status, f" ({message.status})")
    return f"alert {message.rule}{said}"


def _body(message: AlertMessage) -> bytes:
    facts = [{"subject": one.subject, "count": one.count, "text": one.text, "sample": one.sample}
             for one in message.facts]  # fmt: skip
    return json.encode({**asdict(message), "at": instant(message.at), "facts": facts})


def _letter(message: AlertMessage) -> str:
    """The text of a mail: what is new, one subject a line, and what can be done to see more."""
    lines = [f"- {one.text}" + (f": {', '.join(one.sample)}" if one.sample else "") for one in message.facts]
    lines += [f"- and {message.more:,} more"] if message.more else []
    lines += [f"- no longer: {one}" for one in message.over]
    told = "\n".join(lines) or message.text
    return f"{told}\n\nRule {message.rule} ({message.when}), {instant(message.at):%Y-%m-%d %H:%M:%S} UTC.\n"
