"""The `webhooks` section of the OpenAPI document: what endpoints for notices receive."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from app.domain.account_notices import NoticeType
from app.domain.options import ReplayReason
from app.domain.replay_results import ReplayResult
from app.domain.states import ReplayState
from app.http.request_bodies import example

_AT: Final = "2026-11-21T08:10:09.000Z"


class _Content(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


def _example(notice_type: str, data: dict[str, JsonValue]) -> ConfigDict:
    """The configuration of a notice with an example, which has further `data` of a webhook."""
    of_webhook: dict[str, JsonValue] = {
        "accountId": "acc_default",
        "webhookId": "wh_2yPqkM5dTn4v",
    }
    return example({"type": notice_type, "timestamp": _AT, "data": of_webhook | data})


class WebhookDisabledData(_Content):
    """Which webhook was disabled, and why."""

    account_id: str
    webhook_id: str
    failing_since: datetime | None = Field(
        description="Since when its deliveries failed; null if they did not."
    )
    reason: str


class OutageData(_Content):
    """Which webhook fails or failed, and since when."""

    account_id: str
    webhook_id: str
    failing_since: datetime


class SecretExpiringData(_Content):
    """Which webhook has a previous secret, and until when."""

    account_id: str
    webhook_id: str
    expires_at: datetime = Field(description="Then only the new secret signs.")


class ReplayEndedCounts(_Content):
    """The events of the replay, by what became of them."""

    delivered: int
    duplicates: int
    failed: int


class ReplayEndedData(_Content):
    """How a replay ended."""

    account_id: str
    replay_id: str
    webhook_id: str
    from_: datetime = Field(alias="from")
    to: datetime
    state: ReplayState
    result: ReplayResult
    counts: ReplayEndedCounts
    error: str | None
    reason: ReplayReason = Field(
        description="`recovery`: it was created because the receiver accepts events again."
    )


class OutageNotice(_Content):
    """The receiver of a webhook fails, or accepts events again."""

    model_config = _example("webhook.failing", {"failingSince": "2026-11-21T08:09:09.000Z"})

    type: Literal[NoticeType.WEBHOOK_FAILING, NoticeType.WEBHOOK_RECOVERED]
    timestamp: datetime
    data: OutageData


class SecretExpiringNotice(_Content):
    """The previous secret of a webhook stops signing soon."""

    model_config = _example("secret.expiring", {"expiresAt": "2026-11-21T20:10:09.000Z"})

    type: Literal[NoticeType.SECRET_EXPIRING]
    timestamp: datetime
    data: SecretExpiringData


class WebhookDisabledNotice(_Content):
    """A webhook was disabled: nothing more is sent to it."""

    model_config = _example(
        "webhook.disabled",
        {
            "failingSince": "2026-11-16T08:10:05.250Z",
            "reason": "answered 410 Gone",
        },
    )

    type: Literal[NoticeType.WEBHOOK_DISABLED]
    timestamp: datetime
    data: WebhookDisabledData


class ReplayEndedNotice(_Content):
    """A replay has ended."""

    model_config = _example(
        "replay.completed",
        {
            "replayId": "rpl_5d2Lr8KqPz0a",
            "from": "2026-11-21T06:00:00.000Z",
            "to": "2026-11-21T08:00:00.000Z",
            "state": "COMPLETED",
            "result": "succeeded",
            "counts": {"delivered": 16_310, "duplicates": 12, "failed": 0},
            "error": None,
            "reason": "recovery",
        },
    )

    type: Literal[
        NoticeType.REPLAY_COMPLETED, NoticeType.REPLAY_FAILED, NoticeType.REPLAY_CANCELLED
    ]
    timestamp: datetime
    data: ReplayEndedData


NOTICES: Final[Mapping[NoticeType, tuple[type[_Content], str]]] = {
    NoticeType.WEBHOOK_FAILING: (
        OutageNotice,
        "The receiver of a webhook has failed for a minute; nothing is lost.",
    ),
    NoticeType.WEBHOOK_RECOVERED: (
        OutageNotice,
        "The receiver of a webhook that failed accepts events again.",
    ),
    NoticeType.SECRET_EXPIRING: (
        SecretExpiringNotice,
        "The grace period of a replaced secret ends soon.",
    ),
    NoticeType.WEBHOOK_DISABLED: (
        WebhookDisabledNotice,
        "A webhook was disabled, by its owner or because its deliveries failed.",
    ),
    NoticeType.REPLAY_COMPLETED: (ReplayEndedNotice, "A replay reached its end."),
    NoticeType.REPLAY_FAILED: (ReplayEndedNotice, "A replay could not continue."),
    NoticeType.REPLAY_CANCELLED: (ReplayEndedNotice, "A replay was cancelled."),
}
"""The body of each notice, and when it is sent."""

_HEADERS: Final[Mapping[str, str]] = {
    "webhook-id": "The id of the notice, the same in all attempts.",
    "webhook-timestamp": "The time of the attempt, in Unix seconds.",
    "webhook-signature": "The signature of id, time and body, as Standard Webhooks defines it.",
}


def describe_notices(schemas: dict[str, Any], ref_template: str) -> dict[str, Any]:
    """The `webhooks` section; the schemas of its bodies are added to `schemas`."""
    for model in {model for model, _ in NOTICES.values()}:
        schema = model.model_json_schema(ref_template=ref_template)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    return {
        notice_type: {"post": _operation(notice_type, ref_template.format(model=model.__name__))}
        for notice_type, (model, _) in NOTICES.items()
    }


def _operation(notice_type: NoticeType, schema: str) -> dict[str, Any]:
    name = notice_type.replace(".", " ").title().replace(" ", "")
    return {
        "tags": ["notices"],
        "operationId": f"notify{name}",
        "summary": NOTICES[notice_type][1],
        "security": [],
        "parameters": [
            {
                "name": header,
                "in": "header",
                "required": True,
                "description": description,
                "schema": {"type": "string"},
            }
            for header, description in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": schema}}},
        },
        "responses": {
            "2XX": {"description": "The notice is delivered."},
            "410": {"description": "The endpoint is disabled."},
            "default": {"description": "The notice is sent again later."},
        },
    }
