"""The members of request bodies that set how requests are sent to a webhook.

Problems never repeat values of `headers` and `authentication`: see `problems.field_errors`.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator
from pydantic.alias_generators import to_camel

from app.domain.endpoint_options import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    Authentication,
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
    Ordering,
    is_header_value,
    merge_headers,
)
from app.domain.options import EVENTS_PER_SECOND_MAX, IN_FLIGHT_MAX

SECRET_CHARACTERS_MAX: Final = 1_024
TOKEN_CHARACTERS_MAX: Final = 4_096
TIMEOUT_S_MAX: Final = 86_400
PAUSES_MAX: Final = 20
PAUSE_S_MAX: Final = 86_400

_Password = Annotated[
    str,
    Field(min_length=1, max_length=SECRET_CHARACTERS_MAX, json_schema_extra={"format": "password"}),
]
_Name = Annotated[str, Field(min_length=1, max_length=256)]


class _Members(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class BasicMembers(_Members):
    """HTTP basic authentication (RFC 7617)."""

    type: Literal["basic"]
    username: Annotated[str, Field(pattern=r"^[^:\x00-\x1f\x7f]{1,256}$")]
    password: _Password = Field(repr=False)

    def authentication(self) -> Authentication:
        """The authentication to store."""
        return BasicAuthentication(self.username, self.password)


class BearerMembers(_Members):
    """A bearer token (RFC 6750)."""

    type: Literal["bearer"]
    token: str = Field(
        max_length=TOKEN_CHARACTERS_MAX, repr=False, json_schema_extra={"format": "password"}
    )

    @field_validator("token")
    @classmethod
    def _check_token(cls, token: str) -> str:
        if not is_header_value(token) or " " in token:
            raise ValueError("printable ASCII without spaces, not empty")
        return token

    def authentication(self) -> Authentication:
        """The authentication to store."""
        return BearerAuthentication(self.token)


class ClientCredentialsMembers(_Members):
    """OAuth 2.0 client credentials (RFC 6749, section 4.4)."""

    type: Literal["oauth2"]
    token_url: str = Field(
        description="Issues tokens for the credentials: https, and a public address."
    )
    client_id: _Name
    client_secret: _Password = Field(repr=False)
    scope: _Name | None = Field(None, description="Names, separated by spaces.")
    audience: _Name | None = None
    client_authentication: Literal["basic", "body"] = Field(
        "basic", description="How the token request carries the credentials."
    )

    def authentication(self) -> Authentication:
        """The authentication to store."""
        return ClientCredentials(
            self.token_url,
            self.client_id,
            self.client_secret,
            self.scope,
            self.audience,
            self.client_authentication == "body",
        )


OPTIONS_EXAMPLE: Final[dict[str, JsonValue]] = {
    "headers": {"x-tenant": "blue"},
    "authentication": {"type": "bearer", "token": "hJ6c..."},
    "timeoutSeconds": 5,
    "maxEventsPerSecond": 50,
    "maxInFlight": 2,
    "retrySchedule": [5, 60, 600],
    "ordering": "strict",
}


ORDERING: Final = (
    "`strict`: live delivery and recovery replays together send events in the order of the log, "
    "one at a time; new events wait while a recovery replay sends earlier ones. `none`: new events "
    "are sent at once, several at a time."
)


class EndpointMembers(BaseModel):
    """How requests are sent; null removes an option, and a missing member keeps it."""

    model_config = ConfigDict(alias_generator=to_camel)

    headers: dict[str, str | None] | None = Field(
        None,
        repr=False,
        description=f"Headers of all requests to the webhook's server: up to {HEADERS_MAX}, with "
        f"{HEADERS_BYTES_MAX:,} bytes together. Values are never shown again; in a change, null as "
        "a value removes a header, and the others stay.",
    )
    authentication: (
        Annotated[
            BasicMembers | BearerMembers | ClientCredentialsMembers, Field(discriminator="type")
        ]
        | None
    ) = Field(None, description="The `authorization` header of all requests.")
    timeout_seconds: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=TIMEOUT_S_MAX,
        description="For one attempt, at most the operator's setting, which is the default.",
    )
    max_events_per_second: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=EVENTS_PER_SECOND_MAX,
        description="Attempts of live delivery per second. null: no limit.",
    )
    max_in_flight: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=IN_FLIGHT_MAX,
        description="The most concurrent requests of live delivery, up to the operator's setting, "
        "which is the default.",
    )

    retry_schedule: list[Annotated[int, Field(strict=True, ge=1, le=PAUSE_S_MAX)]] | None = Field(
        None,
        min_length=1,
        max_length=PAUSES_MAX,
        description="The pauses in seconds before each retry of an event, together up to four "
        "days; the operator's schedule is the default. Workers make the retries that are too late "
        "for live delivery. Replays use the pauses of live delivery, recovery replays none.",
    )

    ordering: Ordering | None = Field(None, description=f"{ORDERING} null: `none`, the default.")

    @field_validator("headers")
    @classmethod
    def _lower_names(cls, headers: dict[str, str | None] | None) -> dict[str, str | None] | None:
        return None if headers is None else {name.lower(): each for name, each in headers.items()}

    @property
    def changes_options(self) -> bool:
        """Whether a member is present."""
        return not EndpointMembers.model_fields.keys().isdisjoint(self.model_fields_set)

    def changed(self, options: EndpointOptions) -> EndpointOptions:
        """The options after the change."""
        present = self.model_fields_set
        return EndpointOptions(
            merge_headers(options.headers, self.headers if "headers" in present else {}),
            self._authentication if "authentication" in present else options.authentication,
            self.timeout_seconds if "timeout_seconds" in present else options.timeout_s,
            self.max_events_per_second
            if "max_events_per_second" in present
            else options.max_events_per_second,
            self.max_in_flight if "max_in_flight" in present else options.max_in_flight,
            self._retry_schedule_s if "retry_schedule" in present else options.retry_schedule_s,
            self.ordering or Ordering.NONE if "ordering" in present else options.ordering,
        )

    @property
    def _retry_schedule_s(self) -> tuple[int, ...] | None:
        return None if self.retry_schedule is None else tuple(self.retry_schedule)

    @property
    def _authentication(self) -> Authentication | None:
        return None if self.authentication is None else self.authentication.authentication()
