"""Alerts reach a URL and an address for mail, are sent again until they are taken, and show no secret."""

from __future__ import annotations

import asyncio
import hmac
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from pathlib import Path
from threading import Event
from urllib.parse import unquote

import pytest
from msgspec import json

from perdure import AlertRule
from perdure.client.alerting import mail
from perdure.client.alerting.destination import delivered
from perdure.errors import InvalidInput
from perdure.kernel import alerting
from perdure.kernel.alerting import AlertMessage
from tests.alerting.conftest import Watching
from tests.alerting.smtp_server import SmtpServer
from tests.notices.server import Answering, Server
from tests.runtime.conftest import LIMIT, until

MAIL = "mailto:ops@example.org"


async def test_a_message_that_is_not_taken_comes_again_and_other_places_do_not_wait_for_it(
    watching: Watching, server: Server, smtp: SmtpServer, caplog: pytest.LogCaptureFixture
) -> None:
    client, store = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=[server.url, MAIL]))
    await client.outages.begin("order", why="the bank is down")
    server.answers.extend([503, 302])
    for expected in (1, 2, 3, 3):
        await client.alerts.look()
        assert len(server.requests) == expected
        [view] = await client.alerts.list()
        assert view.waiting == bool(view.error) == (expected < 3), "no redirect is followed"
        store.ahead += 60
    assert len({one.headers["Idempotency-Key"] for one in server.requests}) == 1
    assert {one.path for one in server.requests} == {"/hook?token=s3cret"}
    assert len(smtp.mails) == 1
    assert "answered with status 503" in caplog.text and "s3cret" not in caplog.text
    assert view.error == "" and "s3cret" not in repr(view)


async def test_a_message_that_is_given_up_is_logged_with_its_place(
    watching: Watching, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "WAITING", 1)
    client, store = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=server.url))
    server.answers.extend([503] * 10)
    for kind in ("order", "bill"):
        await client.outages.begin(kind, why="the bank is down")
        await client.alerts.look()
        store.ahead += 60
    [first] = {json.decode(one.body)["id"] for one in server.requests if b"order" in one.body}
    assert f"message {first} of alert rule outages is given up for http" in caplog.text
    assert caplog.text.count("is given up") == 1
    store.ahead += 25 * 3600
    await client.alerts.look()
    assert caplog.text.count("is given up") == 2 and "s3cret" not in caplog.text
    [view] = await client.alerts.list()
    assert view.waiting == 0


async def test_a_rule_whose_name_is_not_ascii_reaches_its_places(
    watching: Watching, server: Server, smtp: SmtpServer
) -> None:
    client, _ = await watching()
    for name in ("Płatności 100%", "Pźatności 100%"):
        await client.alerts.add(AlertRule(name, "outage", to=[server.url, MAIL]))
    await client.outages.begin("order", why="the bank is down")
    await client.alerts.look()
    keys = {unquote(one.headers["Idempotency-Key"]): json.decode(one.body) for one in server.requests}
    assert len(keys) == 2 and all(said["id"] == key for key, said in keys.items())
    assert all(one.headers["Idempotency-Key"].isascii() for one in server.requests)
    assert [view.waiting for view in await client.alerts.list()] == [0, 0]
    assert len({sent["Message-ID"] for sent, _ in smtp.mails}) == 2


async def test_what_is_posted_is_signed_and_says_what_is_new(
    server: Server, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_WEBHOOK_SECRET", "hush")
    client, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=server.url))
    await client.outages.begin("order", why="the bank is down")
    await client.alerts.look()
    [request] = server.requests
    signed = hmac.new(b"hush", request.body, "sha256").hexdigest()
    assert request.headers["Perdure-Signature"] == f"sha256={signed}"
    said = json.decode(request.body)
    assert said["at"].endswith("Z") and said["text"] == "order is held as an outage: the bank is down"
    assert said["facts"] == [{"subject": "order", "count": 1, "text": said["text"], "sample": []}]


async def test_a_mail_is_sent_over_an_encrypted_connection_by_the_user_of_the_environment(
    watching: Watching, smtp: SmtpServer
) -> None:
    client, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=MAIL))
    await client.outages.begin("order", why="the bank is down\nBcc: all@example.org")
    await client.alerts.look()
    [(sent, encrypted)] = smtp.mails
    assert isinstance(sent, EmailMessage) and encrypted
    assert (sent["From"], sent["To"], sent["Bcc"]) == ("perdure@example.org", "ops@example.org", None)
    assert sent["Subject"].startswith("[perdure] alert outages: order is held as an outage: the bank is down")
    assert sent["Message-ID"].startswith("<outages.") and "- order is held as an outage" in sent.get_content()


async def test_a_mail_server_may_encrypt_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SmtpServer(tmp_path, smtps=True) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        monkeypatch.setenv("PERDURE_SMTP", server.url)
        monkeypatch.setenv("PERDURE_SMTP_PASSWORD", server.password)
        assert await delivered(MAIL, AlertMessage("1", "night", "broken", "resolved", 0, "no longer: order")) == ""
        [(sent, encrypted)] = server.mails
        assert encrypted and sent["Subject"] == "[perdure] alert night is resolved: no longer: order"


async def test_a_mail_that_the_server_refuses_is_told_by_its_code_and_no_password_is_shown(
    smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = AlertMessage("1", "night", "broken", "firing", 0, "order is broken")
    smtp.refuses = True
    assert await delivered(MAIL, message) == f"{MAIL}: the mail server has answered 451 (SMTPDataError)"
    monkeypatch.setenv("PERDURE_SMTP_PASSWORD", "wr0ng")
    refused = await delivered(MAIL, message)
    assert "535" in refused and "wr0ng" not in refused
    monkeypatch.setenv("PERDURE_SMTP_PASSWORD", "grüezi")
    assert "UnicodeEncodeError" in await delivered(MAIL, message)
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "SSLCertVerificationError" in await delivered(MAIL, message), "who cannot show who it is gets no password"
    monkeypatch.setenv("PERDURE_SMTP", f"smtp://127.0.0.1:{unused(smtp)}")
    assert "cannot be reached" in await delivered(MAIL, message)
    assert smtp.mails == []


def unused(smtp: SmtpServer) -> int:
    """A port on which nobody listens."""
    smtp._server.close()
    return int(smtp.port)


WRONG_SERVERS = (
    "",
    "mail.example.org",
    "http://mail.example.org",
    "smtp://",
    "smtp://mail.example.org:99999",
    "smtp://ana:s3cret@mail.example.org",
    "smtp://ana@mail.example.org?tls=no",
    "smtp://mail.example.org?tls=maybe",
    "smtp://mail.example.org?password=s3cret",
)


@pytest.mark.parametrize("wrong", WRONG_SERVERS)
def test_a_mail_server_that_makes_no_sense_is_refused_without_its_secrets(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SMTP", wrong)
    with pytest.raises(InvalidInput, match="PERDURE_SMTP") as refused:
        mail.mail_server()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example.org", ("mail.example.org", 587, False, True, "")),
        ("smtps://a%40b.org@mail.example.org", ("mail.example.org", 465, True, False, "a@b.org")),
        ("smtp://127.0.0.1:25?tls=no", ("127.0.0.1", 25, False, False, "")),
    ],
)
def test_a_mail_server_is_read_from_the_environment(
    url: str, expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_SMTP", url)
    server = mail.mail_server()
    assert (server.host, server.port, server.smtps, server.starttls, server.user) == expected


async def test_a_trial_sends_to_each_place_says_which_has_failed_and_leaves_the_rule_as_it_is(
    watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_SMTP", raising=False)
    client, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=["log", server.url, MAIL]))
    await client.outages.begin("order", why="the bank is down")
    trial = await client.alerts.test("outages")
    assert not trial.works and trial.holds == ["order is held as an outage: the bank is down"]
    assert [error[:21] for _, error in trial.sent] == ["", "", "no mail server is set"]
    assert json.decode(server.requests[0].body)["status"] == "test"
    [view] = await client.alerts.list()
    assert view.active == [] and view.waiting == 0


async def test_a_place_that_does_not_answer_leaves_the_threads_of_the_event_loop_to_others(
    watching: Watching, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await watching()
    await client.alerts.add(AlertRule("outages", "outage", to=server.url))
    await client.outages.begin("order", why="the bank is down")
    answer = Event()
    monkeypatch.setattr(server, "answers", Answering(lambda: 200 if answer.wait(LIMIT) else 503))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    look = asyncio.create_task(client.alerts.look())
    await until(lambda: server.requests)
    await asyncio.to_thread(answer.set)  # the server answers once another thread has been free
    await look
    [view] = await client.alerts.list()
    assert view.waiting == 0 and view.error == ""
