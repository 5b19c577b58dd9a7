"""The mailer against a mail server on a real socket."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from app.config import Settings
from app.domain.mail import MailResult, MailServer, MailVerdict
from app.domain.notice_mails import Mail
from app.mail.mailer import REPLY_CHARS_MAX, Mailer
from tests.support.http.certificates import CertificateFiles, self_signed
from tests.support.http.mail_server import MailServerThread
from tests.support.processes.ports import free_port

SENDER: Final = "Rewind <rewind@example.com>"
PASSWORD: Final = "s3cret-of-the-mail-server"
MAIL: Final = Mail(
    "ntc_1", "ops@example.com", "Webhook is failing", "a\n.\n..b\n", 1_764_000_000_000
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return self_signed(tmp_path_factory.mktemp("mail"), "localhost")


@pytest.fixture
def server() -> Iterator[MailServerThread]:
    with MailServerThread() as server:
        yield server


def sent(url: str, timeout_s: float = 60.0, password_file: str = "") -> MailResult:
    server = MailServer.parse(url)
    assert server is not None
    return asyncio.run(Mailer(server, SENDER, timeout_s, password_file).send(MAIL))


def test_a_mail_arrives_as_it_was_composed(server: MailServerThread) -> None:
    result = sent(server.url)
    assert result == MailResult(MailVerdict.ACCEPTED, "2.0.0 queued", 250)
    (mail,) = server.mails
    assert (mail.sender, mail.recipient) == ("rewind@example.com", "ops@example.com")
    message = mail.message
    assert message["Subject"] == "[Rewind] Webhook is failing"
    assert (message["From"], message["To"]) == (SENDER, "ops@example.com")
    assert message["Message-ID"] == "<ntc_1@example.com>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message.get_content_type() == "text/plain"
    assert mail.text == MAIL.text
    assert all(len(line) <= 998 for line in mail.raw.split(b"\r\n"))
    assert mail.raw.isascii()


@pytest.mark.parametrize("is_implicit", [False, True])
def test_the_password_is_sent_over_verified_tls(
    is_implicit: bool, certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    login = {"user": "mailer", "password": PASSWORD}
    with MailServerThread(certificate, **login, is_implicit=is_implicit) as server:
        assert sent(server.url).is_accepted
        (mail,) = server.mails
        assert (mail.user, mail.is_encrypted) == ("mailer", True)


def test_a_password_file_is_read_for_each_mail(
    certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    file = tmp_path / "password"
    with MailServerThread(certificate, user="mailer", password=PASSWORD) as server:
        url = f"smtp://mailer@localhost:{server.port}"
        assert not sent(url, password_file=str(file)).is_accepted
        file.write_text("wrong\n")
        assert not sent(url, password_file=str(file)).is_accepted
        file.write_text(f"{PASSWORD}\n")
        assert sent(url, password_file=str(file)).is_accepted


def test_nothing_is_sent_to_a_server_whose_certificate_is_not_valid(
    certificate: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with MailServerThread(certificate, user="mailer", password=PASSWORD) as server:
        assert sent(server.url).verdict is MailVerdict.DEFERRED
        assert not {"AUTH", "MAIL"} & set(server.commands)
    assert "certificate verify failed" in reason(caplog)


def test_nothing_is_sent_without_tls_unless_the_operator_says_so(server: MailServerThread) -> None:
    assert sent(f"smtp://127.0.0.1:{server.port}").verdict is MailVerdict.DEFERRED
    assert server.mails == []


def reason(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    assert (record.name, record.getMessage()) == ("rewind.mail", "mail-server-failed")
    return str(record.__dict__["reason"])


@pytest.mark.parametrize(
    ("replies", "verdict", "status"),
    [
        ({"RCPT": "550 5.1.1 no such user"}, MailVerdict.NO_SUCH_ADDRESS, 550),
        ({"RCPT": "556 5.1.10 null MX"}, MailVerdict.NO_SUCH_ADDRESS, 556),
        ({"RCPT": "550 5.7.1 relaying denied"}, MailVerdict.REFUSED, 550),
        ({"RCPT": "551 no enhanced status"}, MailVerdict.REFUSED, 551),
        ({"RCPT": "450 4.2.1 greylisted"}, MailVerdict.DEFERRED, 450),
        ({"DATA": "554 5.5.1 no recipients"}, MailVerdict.REFUSED, 554),
        ({"END": "552 5.3.4 too big"}, MailVerdict.REFUSED, 552),
        ({"END": "451 4.3.0 disk full"}, MailVerdict.DEFERRED, 451),
    ],
)
def test_replies_about_a_mail_decide_whether_it_is_sent_again(
    server: MailServerThread, replies: dict[str, str], verdict: MailVerdict, status: int
) -> None:
    server.answer(**replies)
    result = sent(server.url)
    assert (result.verdict, result.status) == (verdict, status)
    (reply,) = replies.values()
    assert result.reply == f"mail server replied {reply}"
    assert server.mails == []


@pytest.mark.parametrize(
    "replies", [{"CONNECT": "421 busy"}, {"EHLO": "500 no", "HELO": "500 no"}, {"MAIL": "550 no"}]
)
def test_refusals_of_the_service_itself_are_for_its_operator(
    server: MailServerThread, replies: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server.answer(**replies)
    assert sent(server.url) == MailResult(MailVerdict.DEFERRED, "mail server unavailable")
    assert list(replies.values())[-1] in reason(caplog)


def test_a_server_that_is_down_or_hangs_defers_the_mail(
    server: MailServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    assert sent(f"smtp://127.0.0.1:{free_port()}").verdict is MailVerdict.DEFERRED
    assert "ConnectionRefusedError" in reason(caplog)
    server.hold("RCPT")
    assert sent(server.url, timeout_s=0.3).verdict is MailVerdict.DEFERRED


def test_an_accepted_mail_is_sent_although_the_goodbye_fails(server: MailServerThread) -> None:
    server.answer(QUIT="421 crashed")
    assert sent(server.url).is_accepted
    assert len(server.mails) == 1


def test_a_long_reply_is_shortened(server: MailServerThread) -> None:
    server.answer(RCPT="\r\n".join(["550-5.7.1 " + "x" * 400] * 5 + ["550 5.7.1 end"]))
    assert len(sent(server.url).reply) <= REPLY_CHARS_MAX + len("mail server replied 550 ")


def test_the_password_is_in_no_log_line_result_or_text_of_settings(
    certificate: CertificateFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    with MailServerThread(certificate, user="mailer", password="another") as server:
        for password in (PASSWORD, f"{PASSWORD}%C3%A9"):
            url = f"smtp://mailer:{password}@localhost:{server.port}"
            settings = Settings.load({"REWIND_SMTP_URL": url, "REWIND_SMTP_FROM": SENDER})
            mailer = Mailer.of(settings)
            assert mailer is not None
            result = asyncio.run(mailer.send(MAIL))
            assert result.verdict is MailVerdict.DEFERRED
            shown = (repr(settings), str(settings), repr(settings.mail_server), repr(result))
            logged = [str(record.__dict__) for record in caplog.records]
            assert PASSWORD not in "".join([*shown, *logged])
    assert "replied 535 5.7.8 wrong" in "".join(logged)
