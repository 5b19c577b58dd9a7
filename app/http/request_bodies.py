"""Request bodies of the API, which forms of the console are validated with as well."""

from typing import Annotated, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel

from app.domain.deliveries import ID_CHARS_MAX
from app.domain.endpoint_options import NO_OPTIONS
from app.domain.model import NewReplay, Validation, Window
from app.domain.options import (
    BATCH_EVENTS_MAX,
    EVENT_TYPES_MAX,
    EVENTS_PER_SECOND,
    EVENTS_PER_SECOND_MAX,
    IN_FLIGHT_MAX,
    Only,
    ReplayOptions,
    Source,
)
from app.domain.resends import RESENDS_PER_REQUEST_MAX
from app.domain.windows import TIME_ALLOWED, TimeUnreadable, parse_time
from app.http.endpoint_options import OPTIONS_EXAMPLE, EndpointMembers
from app.services.webhooks import WebhookRegistration

DESCRIPTION_CHARACTERS_MAX: Final = 500

GRACE_S: Final = 86_400
GRACE_S_MAX: Final = 604_800

SECRET_EXAMPLE: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwNEED2GHJdWk="  # noqa: S105


def _read_time(value: object) -> int:
    if not isinstance(value, str):
        raise TimeUnreadable(repr(value))
    return parse_time(value)


Time = Annotated[
    int,
    BeforeValidator(_read_time),
    WithJsonSchema({"type": "string", "description": TIME_ALLOWED}),
]
"""A time in a request, in milliseconds; text in JSON."""

EventTypeGlob = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]
"""A glob on event types: `*` matches any characters, `?` one."""

EVENT_ID: Final = r"^[!-~]{1,256}$"
EventId = Annotated[str, Field(pattern=EVENT_ID)]

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]
RegisteredAccountId = Annotated[str, Field(pattern=r"^[!-~]{1,40}$")]

# Its format is checked by the service, whose error does not repeat the value.
Secret = Annotated[
    str,
    Field(
        json_schema_extra={"format": "password", "examples": [SECRET_EXAMPLE]},
        description="`whsec_` and 24 to 64 bytes in base64.",
    ),
]


AUTO_RECOVERY: Final = (
    "Whether a webhook whose receiver keeps failing gets what it missed by a replay, once the "
    "receiver accepts events again. false: each event has its own retries, and is then failed."
)


def example(value: dict[str, JsonValue]) -> ConfigDict:
    """The configuration of a body with an example in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class RequestBody(BaseModel):
    """A request body; unknown fields are an error."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class ResendRequest(RequestBody):
    """Deliveries of a webhook to send once more, by their ids or by those of their events."""

    model_config = example(
        {"eventIds": ["evt_31f6"], "from": "2026-11-21T06:00:00Z", "to": "2026-11-21T08:00:00Z"}
    )

    delivery_ids: list[Annotated[str, Field(min_length=1, max_length=ID_CHARS_MAX)]] | None = Field(
        None, min_length=1, max_length=RESENDS_PER_REQUEST_MAX
    )
    event_ids: list[EventId] | None = Field(
        None,
        min_length=1,
        max_length=RESENDS_PER_REQUEST_MAX,
        description="The latest delivery of each event; instead of `deliveryIds`.",
    )
    from_ms: Time | None = Field(
        None,
        alias="from",
        description="Where to search for `eventIds`: events from this time on; by default a day "
        "before `to`.",
    )
    to_ms: Time | None = Field(
        None, alias="to", description="Events before this time; by default now."
    )


class ReplayRequest(RequestBody):
    """A replay to create: the webhook's events with `from` <= time < `to`."""

    model_config = example(
        {
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00Z",
            "to": "2026-11-21T08:00:00Z",
            "eventTypes": ["follow.*", "dm.sent"],
            "maxEventsPerSecond": 500,
        }
    )

    webhook_id: str = Field(min_length=1, max_length=256)
    from_ms: Time = Field(alias="from")
    to_ms: Time = Field(alias="to")
    source: Source = Field(
        Source.LOG,
        description="`archive`: for windows that are no longer in the log. Such a replay waits "
        "until an operator's job has restored its events from the archive.",
    )
    event_types: list[EventTypeGlob] = Field(
        [],
        max_length=EVENT_TYPES_MAX,
        description="Globs (`*` any characters, `?` one); only events of a matching type are "
        "sent. Empty: all events.",
    )
    only: Only = Field(
        Only.ALL, description="`failed`: only events not yet delivered, live or by a replay."
    )
    max_events_per_second: int = Field(
        EVENTS_PER_SECOND, strict=True, ge=1, le=EVENTS_PER_SECOND_MAX
    )
    max_in_flight: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=IN_FLIGHT_MAX,
        description="The most concurrent requests; with 1 the events arrive in strict order. "
        "null: the worker's setting.",
    )
    batch_size: int = Field(
        1,
        strict=True,
        ge=1,
        le=BATCH_EVENTS_MAX,
        description="Maximum events per POST; above 1 the body is a JSON array of events.",
    )
    target_url: str | None = Field(
        None,
        description="Another URL to send the events to. Its receiver must pass the webhook's "
        "verification when the replay is created.",
    )
    dry_run: bool = Field(
        False, strict=True, description="Only estimate the replay; create nothing."
    )

    @property
    def new_replay(self) -> NewReplay:
        """The replay to create."""
        window = Window(self.from_ms, self.to_ms)
        return NewReplay(self.webhook_id, window, self._options, source=self.source)

    @property
    def _options(self) -> ReplayOptions:
        return ReplayOptions(
            event_types=tuple(self.event_types),
            only=self.only,
            max_events_per_second=self.max_events_per_second,
            max_in_flight=self.max_in_flight,
            batch_size=self.batch_size,
            target_url=self.target_url,
        )


class WebhookRequest(EndpointMembers, RequestBody):
    """A webhook to register."""

    model_config = example(
        {"url": "https://example.com/hooks", "description": "billing", "eventTypes": ["follow.*"]}
    )

    url: str = Field(description="Where events are sent: https, and a public address.")
    description: Description = ""
    validation: Validation = Field(
        Validation.PING,
        description="The verification: `ping`, a signed `webhook.ping` that the receiver answers "
        "with a 2xx, or `crc`, Twitter's challenge-response check.",
    )
    secret: Secret | None = Field(None, repr=False, description="Default: a generated secret.")
    event_types: list[EventTypeGlob] | None = Field(
        None,
        min_length=1,
        max_length=EVENT_TYPES_MAX,
        description="Globs for the rule `default`, by which events of these types are addressed "
        "to the webhook.",
    )
    auto_recovery: bool = Field(True, strict=True, description=AUTO_RECOVERY)
    account_id: RegisteredAccountId | None = Field(
        None, description="For operators: the account of the webhook, if it is not their own."
    )

    def registration(self) -> WebhookRegistration:
        """The webhook to register."""
        return WebhookRegistration(
            url=self.url,
            description=self.description,
            validation=self.validation,
            event_types=tuple(self.event_types or ()),
            account_id=self.account_id,
            secret=self.secret,
            auto_recovery=self.auto_recovery,
            options=self.changed(NO_OPTIONS),
        )


def refuse_null_text(value: object) -> object:
    """The text of a change, where null is not the same as a missing member."""
    if value is None:
        raise ValueError("a text; omit the member to keep its value")
    return value


class WebhookChange(EndpointMembers, RequestBody):
    """The changes of a webhook; missing members keep their values."""

    model_config = example({"url": "https://example.com/hooks/v2", **OPTIONS_EXAMPLE})

    url: str | None = None
    description: Description | None = None
    auto_recovery: bool | None = Field(None, strict=True, description=AUTO_RECOVERY)
    event_types: list[EventTypeGlob] | None = Field(
        None,
        min_length=1,
        max_length=EVENT_TYPES_MAX,
        description="Globs of the rule `default`, which keeps its conditions. null deletes it.",
    )

    @property
    def new_event_types(self) -> tuple[str, ...] | None:
        """The event types of the rule `default`: None to keep them, empty to delete the rule."""
        return tuple(self.event_types or ()) if "event_types" in self.model_fields_set else None

    _refuse_null = field_validator("url", "description", mode="before")(refuse_null_text)

    @field_validator("auto_recovery", mode="before")
    @classmethod
    def _refuse_null_choice(cls, value: object) -> object:
        if value is None:
            raise ValueError("true or false; omit the member to keep its value")
        return value


class Disabling(RequestBody):
    """The reason why a webhook is disabled."""

    model_config = example({"reason": "the receiver moves to another data centre"})

    reason: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_CHARACTERS_MAX)] = (
        "disabled by its owner"
    )


class Rotation(RequestBody):
    """A new secret, and for how long the previous one also signs."""

    model_config = example({"gracePeriodSeconds": GRACE_S})

    secret: Secret | None = Field(
        default=None, repr=False, description="Default: a generated secret."
    )
    grace_period_seconds: int = Field(default=GRACE_S, strict=True, ge=0, le=GRACE_S_MAX)
