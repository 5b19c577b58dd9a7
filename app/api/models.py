"""What requests and answers look like: JSON in camelCase, times in RFC 3339."""

from typing import Annotated, Final, Generic, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel

from app.replay.model import Counts, Failure, Replay, Webhook, Window
from app.replay.progress import progress
from app.replay.states import ReplayState
from app.replay.windows import TIME_ALLOWED, TimeUnreadable, format_time, parse_time

Item = TypeVar("Item", bound=BaseModel)

DESCRIPTION_CHARACTERS_MAX: Final = 500


def _read_time(value: object) -> int:
    if not isinstance(value, str):
        raise TimeUnreadable(repr(value))
    return parse_time(value)


Time = Annotated[
    int,
    BeforeValidator(_read_time),
    WithJsonSchema({"type": "string", "description": TIME_ALLOWED}),
]
"""A moment in a request: milliseconds inside, text outside."""

Moment = Annotated[
    int,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A moment in an answer: milliseconds inside, RFC 3339 UTC outside."""

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]


def _example(value: dict[str, JsonValue]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


class _Request(BaseModel):
    """A body that came in: a member of another name is a mistake, and said to be one."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class _Answer(BaseModel):
    """A body that goes out."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        json_schema_serialization_defaults_required=True,
    )


class WebhookRequest(_Request):
    """A webhook to register."""

    model_config = _example({"url": "https://example.com/hooks", "description": "billing"})

    url: str = Field(description="Where events are sent: https, and a public address.")
    description: Description = ""


class WebhookChange(_Request):
    """What is to change; what is left out stays."""

    model_config = _example({"url": "https://example.com/hooks/v2"})

    url: str | None = None
    description: Description | None = None

    @field_validator("url", "description", mode="before")
    @classmethod
    def _refuse_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("a text; leave the member out to keep what is there")
        return value


WEBHOOK_EXAMPLE: Final[dict[str, JsonValue]] = {
    "id": "wh_2yPqkM5dTn4v",
    "url": "https://example.com/hooks",
    "description": "billing",
    "createdAt": "2026-11-21T08:00:00.000Z",
}


class WebhookDocument(_Answer):
    """A registered webhook, without its secret."""

    model_config = _example(WEBHOOK_EXAMPLE)

    id: str
    url: str
    description: str
    created_at: Moment

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        """The document of a webhook."""
        return cls(
            id=webhook.id,
            url=webhook.url,
            description=webhook.description,
            created_at=webhook.created_ms,
        )


class WebhookWithSecret(WebhookDocument):
    """A webhook just registered; its secret is shown here and never again."""

    model_config = _example(
        WEBHOOK_EXAMPLE | {"secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwNEED2GHJdWk="}
    )

    secret: str = Field(repr=False, description="Signs what is sent (Standard Webhooks).")

    @classmethod
    def of(cls, webhook: Webhook) -> Self:
        """The document of a webhook, secret included."""
        return cls(**dict(WebhookDocument.of(webhook)), secret=webhook.secret)


class ReplayRequest(_Request):
    """A replay to start: every event owed to the webhook with `from` <= time < `to`."""

    model_config = _example(
        {
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00Z",
            "to": "2026-11-21T08:00:00Z",
        }
    )

    webhook_id: str
    from_ms: Time = Field(alias="from")
    to_ms: Time = Field(alias="to")

    @property
    def window(self) -> Window:
        """The window asked for."""
        return Window(self.from_ms, self.to_ms)


class CountsDocument(_Answer):
    """What became of the events below the checkpoint."""

    delivered: int
    duplicates: int
    failed: int

    @classmethod
    def of(cls, counts: Counts) -> Self:
        """The document of counts."""
        return cls(delivered=counts.delivered, duplicates=counts.duplicates, failed=counts.failed)


class ReplayDocument(_Answer):
    """A replay and how far it is."""

    model_config = _example(
        {
            "id": "rpl_7sKx2mQw9fLc",
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-11-21T06:00:00.000Z",
            "to": "2026-11-21T08:00:00.000Z",
            "state": "ONGOING",
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "checkpoint": 137_305,
            "counts": {"delivered": 4_070, "duplicates": 12, "failed": 1},
            "progress": 0.25,
            "eventsPerSecond": 2_041.5,
            "etaSeconds": 6.0,
            "estimatedFinishAt": "2026-11-21T08:10:08.000Z",
            "createdAt": "2026-11-21T08:10:00.000Z",
            "startedAt": "2026-11-21T08:10:00.150Z",
            "heartbeatAt": "2026-11-21T08:10:02.000Z",
            "finishedAt": None,
            "worker": "replayer-1:4711",
            "leaseEpoch": 1,
            "error": None,
        }
    )

    id: str
    webhook_id: str
    from_: Moment = Field(serialization_alias="from")
    to: Moment
    state: ReplayState
    partition: int | None = Field(description="The one partition that is read; null until then.")
    start_offset: int | None
    end_offset: int | None = Field(description="The first offset that is not read.")
    checkpoint: int | None = Field(
        description="Below this offset everything is delivered, a duplicate or listed as failed."
    )
    counts: CountsDocument
    progress: float = Field(ge=0, le=1, description="The share of the offsets that is done.")
    events_per_second: float | None = Field(description="The mean since the start.")
    eta_seconds: float | None
    estimated_finish_at: Moment | None
    created_at: Moment
    started_at: Moment | None
    heartbeat_at: Moment | None
    finished_at: Moment | None
    worker: str | None
    lease_epoch: int = Field(description="How often a worker has claimed the replay.")
    error: str | None

    @classmethod
    def of(cls, replay: Replay, now_ms: int) -> Self:
        """The document of a replay as of `now_ms`."""
        pace = progress(replay, now_ms)
        offsets = replay.offsets
        return cls(
            id=replay.id,
            webhook_id=replay.webhook_id,
            from_=replay.window.from_ms,
            to=replay.window.to_ms,
            state=replay.state,
            partition=None if offsets is None else offsets.partition,
            start_offset=None if offsets is None else offsets.start,
            end_offset=None if offsets is None else offsets.end,
            checkpoint=replay.checkpoint,
            counts=CountsDocument.of(replay.counts),
            progress=pace.share,
            events_per_second=pace.rate_events_s,
            eta_seconds=pace.eta_s,
            estimated_finish_at=None if pace.eta_s is None else now_ms + round(pace.eta_s * 1000),
            created_at=replay.created_ms,
            started_at=replay.started_ms,
            heartbeat_at=replay.heartbeat_ms,
            finished_at=replay.finished_ms,
            worker=replay.worker,
            lease_epoch=replay.lease_epoch,
            error=replay.error,
        )


class FailureDocument(_Answer):
    """An event that was given up."""

    model_config = _example(
        {
            "offset": 121_377,
            "eventId": "evt_31f6",
            "attempts": 6,
            "status": 503,
            "reason": "the receiver answered 503",
        }
    )

    offset: int
    event_id: str
    attempts: int
    status: int | None = Field(description="The last HTTP answer; null when there was none.")
    reason: str

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The document of a failure."""
        return cls(
            offset=failure.offset,
            event_id=failure.event_id,
            attempts=failure.attempts,
            status=failure.status,
            reason=failure.reason,
        )


class Listing(_Answer, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="Ask for the next page with it; null at the end.")


class Acceptance(_Answer):
    """How many events are in the log, acknowledged by every replica that must have them."""

    model_config = _example({"accepted": 2})

    accepted: int


class Health(_Answer):
    """All is well."""

    model_config = _example({"status": "ok"})

    status: Literal["ok"] = "ok"
