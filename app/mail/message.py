"""Mails as internet messages (RFC 5322)."""

from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from app.domain.mail import sender_address
from app.domain.notice_mails import Mail

_UNFOLDED: Final = SMTP.clone(max_line_length=900)
"""Within the 998 characters of RFC 5322: Python encodes a Message-ID that it has to fold."""


def message_bytes(mail: Mail, sender: str) -> bytes:
    """The message from `sender` in ASCII, the same for the same mail.

    The Message-ID is that of the mail in the sender's domain, so receivers that discard duplicates
    recognise a second attempt.

    Raises:
        ValueError: a header has a line break.
    """
    domain = sender_address(sender).rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = mail.address
    message["Subject"] = f"[Rewind] {mail.subject}"
    message["Date"] = format_datetime(datetime.fromtimestamp(mail.at_ms / 1_000, UTC))
    message["Message-ID"] = f"<{mail.id}@{domain}>"
    # RFC 3834: no automatic replies.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text, cte="quoted-printable")
    return message.as_bytes(policy=_UNFOLDED)
