"""Request bodies of notice endpoints, for the API and for forms of the console."""

from typing import Annotated

from pydantic import Field, field_validator

from app.domain.account_notices import NoticeType
from app.domain.mail_confirmations import CODE_CHARS_MAX
from app.http.request_bodies import (
    Description,
    RegisteredAccountId,
    RequestBody,
    Secret,
    example,
    refuse_null_text,
)
from app.services.notice_endpoints import NoticeEndpointRegistration

_URL = "https://example.com/rewind-notices"

_NoticeTypes = Annotated[list[NoticeType], Field(min_length=1, max_length=len(NoticeType))]


class NoticeEndpointRequest(RequestBody):
    """A notice endpoint to register."""

    model_config = example({"url": _URL, "eventTypes": ["webhook.disabled"]})

    url: str = Field(
        description="Where notices are sent: https and a public address, or `mailto:` and an "
        "e-mail address, if the operator has configured a mail server."
    )
    description: Description = ""
    event_types: _NoticeTypes | None = Field(
        None, description="The notices to send. null: all, also those of later versions."
    )
    secret: Secret | None = Field(
        None, repr=False, description="Default: a generated secret. Not for an e-mail address."
    )
    account_id: RegisteredAccountId | None = Field(
        None, description="For operators: the account, if it is not their own."
    )

    def registration(self) -> NoticeEndpointRegistration:
        """The endpoint to register."""
        return NoticeEndpointRegistration(
            url=self.url,
            description=self.description,
            event_types=_distinct(self.event_types),
            account_id=self.account_id,
            secret=self.secret,
        )


class NoticeEndpointChange(RequestBody):
    """The changes of a notice endpoint; missing members keep their values."""

    model_config = example({"eventTypes": ["webhook.disabled", "replay.failed"]})

    url: str | None = Field(
        None,
        description="Its receiver is verified, and is sent what is pending if it passes. A new "
        "e-mail address has to be confirmed.",
    )
    description: Description | None = None
    event_types: _NoticeTypes | None = Field(
        None, description="The notices to send from now on. null: all."
    )

    @property
    def new_event_types(self) -> tuple[NoticeType, ...] | None:
        """The notices to send: None to keep them, empty for all."""
        return _distinct(self.event_types) if "event_types" in self.model_fields_set else None

    _refuse_null = field_validator("url", "description", mode="before")(refuse_null_text)


class AddressConfirmation(RequestBody):
    """The code of a confirmation mail."""

    model_config = example({"code": "7KQM-2XPL-9RTD"})

    code: str = Field(min_length=1, max_length=CODE_CHARS_MAX, description="It is valid for a day.")


def _distinct(types: list[NoticeType] | None) -> tuple[NoticeType, ...]:
    return tuple(dict.fromkeys(types or ()))
