"""The tables of notice endpoints, of the notices to send to them, and of confirmation mails."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text, text

from app.domain.mail import ADDRESS_CHARS_MAX
from app.store.tables import DIGEST_CHARS, ID_CHARS, TABLE_OPTIONS, accounts, metadata

DUE_INDEX: Final = "ix_account_notices_due_ms"

notice_endpoints: Final = Table(
    "notice_endpoints",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    Column("account_id", String(ID_CHARS), ForeignKey(accounts.c.id), nullable=False),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False),
    # JSON: a list, empty for all types.
    Column("event_types", Text, nullable=False),
    # Encrypted, see `secret_keys`.
    Column("secret", String(255), nullable=False),
    # Also signs until then.
    Column("previous_secret", String(255)),
    Column("previous_secret_until_ms", BigInteger),
    Column("status", String(16), nullable=False),
    Column("status_reason", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("validated_ms", BigInteger),
    # The last notice that it accepted, and the last failed attempt.
    Column("delivered_ms", BigInteger),
    Column("failed_ms", BigInteger),
    Column("failure", Text),
    Index(None, "account_id", "created_ms", "id"),
    Index(None, "created_ms", "id"),
    **TABLE_OPTIONS,
)

account_notices: Final = Table(
    "account_notices",
    metadata,
    # The `webhook-id`: the same for all endpoints of the account.
    Column("id", String(ID_CHARS), primary_key=True),
    # Without a foreign key: inserts do not lock the endpoint's row.
    Column("endpoint_id", String(ID_CHARS), primary_key=True),
    # The webhook that it is about.
    Column("webhook_id", String(ID_CHARS), nullable=False),
    Column("type", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    # 1 if the endpoint is an e-mail address.
    Column("is_mail", Integer, nullable=False, server_default=text("0")),
    Index(DUE_INDEX, "due_ms"),
    Index(None, "endpoint_id"),
    Index(None, "webhook_id"),
    **TABLE_OPTIONS,
)

mail_confirmations: Final = Table(
    "mail_confirmations",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    # Rows outlive their endpoint: they limit the mails of the account.
    Column("account_id", String(ID_CHARS), nullable=False),
    Column("endpoint_id", String(ID_CHARS), nullable=False),
    # In lower case.
    Column("address", String(ADDRESS_CHARS_MAX), nullable=False),
    # SHA-256 of the code, in hexadecimal digits.
    Column("code_digest", String(DIGEST_CHARS), nullable=False),
    Column("sent_ms", BigInteger, nullable=False),
    Index(None, "account_id", "sent_ms"),
    Index(None, "endpoint_id"),
    Index(None, "sent_ms"),
    **TABLE_OPTIONS,
)
