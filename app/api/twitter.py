"""The Twitter-compatible route that creates a replay.

Source: Twitter, Account Activity Replay API (v1.1).
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict

from app.api.admission import CallerDependency
from app.api.twitter_errors import NEGATIVE_ID, NOT_PAST, PATH_PREFIX
from app.domain.model import NewReplay, Replay, Window
from app.domain.options import NoticeStyle
from app.domain.windows import TimeUnreadable, parse_time
from app.http.dependencies import ServicesDependency
from app.http.problems import Problem
from app.services.errors import FieldError, InvalidRequest
from app.services.replays import create_replay
from app.services.services import now_ms

DATE_ALLOWED: Final = "yyyymmddhhmm in UTC"

_NEGATIVE: Final = re.compile(r"-[0-9]+")

MinuteDate = Annotated[str, Query(pattern=r"^[0-9]{12}$", description=DATE_ALLOWED)]


class TwitterJob(BaseModel):
    """A created replay in Twitter's form."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"job_id": "rpl_7sKx2mQw9fLc", "created_at": "2026-11-21T08:10:00Z"}]
        }
    )

    job_id: str
    created_at: str

    @classmethod
    def of(cls, replay: Replay) -> Self:
        """The document of a replay; its time is in whole seconds."""
        created = datetime.fromtimestamp(replay.created_ms // 1000, UTC)
        return cls(job_id=replay.id, created_at=created.strftime("%Y-%m-%dT%H:%M:%SZ"))


class TwitterError(BaseModel):
    """One error."""

    code: int
    message: str


class TwitterErrors(BaseModel):
    """An error response in Twitter's form."""

    errors: list[TwitterError]


_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {
        "model": TwitterErrors,
        "description": "214 the webhook is not enabled, 356 the window is empty, reversed or too "
        "old, 357 a parameter is missing, 358 malformed, 360 the id is negative, 368 a date is not "
        "in the past.",
    },
    401: {"model": TwitterErrors, "description": "32 no bearer token, 61 an unknown one."},
    403: {"model": TwitterErrors, "description": "200 not permitted for this API key."},
    404: {"model": TwitterErrors, "description": "34 webhook not found."},
    409: {"model": TwitterErrors, "description": "355 the webhook has an active replay."},
    429: {"model": TwitterErrors, "description": "88 too many requests."},
    500: {"model": TwitterErrors, "description": "0 unexpected error."},
    503: {"model": TwitterErrors, "description": "67 log or database unavailable."},
    "default": {"model": TwitterErrors, "description": "Any other error."},
}

router = APIRouter(prefix=PATH_PREFIX.rstrip("/"), tags=["replays"])


@router.post(
    "/account_activity/replay/webhooks/{webhook_id}/subscriptions/all.json",
    operation_id="createReplayAsOnTwitter",
    status_code=202,
    responses=_REFUSALS,
)
async def create_replay_as_on_twitter(
    webhook_id: Annotated[str, Path()],
    from_date: MinuteDate,
    to_date: MinuteDate,
    services: ServicesDependency,
    caller: CallerDependency,
) -> TwitterJob:
    """Replay the minutes from `from_date` to `to_date`, which is excluded, as Twitter's API does.

    At the end the webhook gets Twitter's `replay_job_status`. Dates may be as late as now; Twitter
    requires that they are at least 31 and 10 minutes old.
    """
    if _NEGATIVE.fullmatch(webhook_id):
        raise Problem.of_fields(NEGATIVE_ID, [FieldError("webhook_id", webhook_id, "0 or more")])
    window = Window(_past("from_date", from_date), _past("to_date", to_date))
    new = NewReplay(webhook_id, window, notice=NoticeStyle.TWITTER)
    return TwitterJob.of(await create_replay(services, caller, new))


def _past(name: str, date: str) -> int:
    try:
        time_ms = parse_time(date)
    except TimeUnreadable:
        raise InvalidRequest(fields=[FieldError(name, date, DATE_ALLOWED)]) from None
    if time_ms > now_ms():
        raise Problem.of_fields(NOT_PAST, [FieldError(name, date, "a date in the past")])
    return time_ms
