"""Bodies of the routes that tell how a webhook's receiver fares."""

import math
from collections.abc import Sequence
from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment, example
from app.domain.missed import MissedHour
from app.domain.tallies import TOOK_MS_BOUNDS, DeliveryTally
from app.webhooks.endpoint_test import EndpointTest


class TrialDocument(Document):
    """What a receiver made of a test."""

    model_config = example(
        {
            "delivered": False,
            "status": 401,
            "reason": "HTTP 401 Unauthorized",
            "durationMs": 38,
            "response": "no such signature",
        }
    )

    delivered: bool = Field(description="It answered with a status of the 200s.")
    status: int | None = Field(description="Of its answer; null where none came.")
    reason: str | None = Field(description="Why it was not delivered.")
    duration_ms: int
    response: str | None = Field(
        description="How the body of the answer begins, up to 1,024 bytes, as text. Null where "
        "none came; and to a developer whose receiver has not proved yet to be theirs."
    )

    @classmethod
    def of(cls, trial: EndpointTest) -> Self:
        """The document of a trial."""
        return cls(
            delivered=trial.delivered,
            status=trial.status,
            reason=trial.reason,
            duration_ms=trial.duration_ms,
            response=trial.response,
        )


class AnsweredWithin(Document):
    """How many attempts took up to so long, and longer than the class before."""

    within_ms: int | None = Field(description="Null for all that took longer.")
    count: int


class StatisticsDocument(Document):
    """How live deliveries to a webhook went in the last hour."""

    model_config = example(
        {
            "from": "2026-11-21T08:00:00.000Z",
            "to": "2026-11-21T09:03:12.250Z",
            "delivered": 940,
            "failed": 12,
            "leftOver": 48,
            "disabled": 0,
            "successRate": 0.94,
            "p50Ms": 100,
            "p95Ms": 500,
            "answers": [
                {"withinMs": 50, "count": 410},
                {"withinMs": 100, "count": 390},
                {"withinMs": 250, "count": 80},
                {"withinMs": 500, "count": 50},
                {"withinMs": 1000, "count": 10},
                {"withinMs": 2500, "count": 0},
                {"withinMs": 5000, "count": 0},
                {"withinMs": None, "count": 12},
            ],
        }
    )

    from_: Moment = Field(serialization_alias="from", description="At a full five minutes.")
    to: Moment
    delivered: int = Field(description="Events that were settled in this time, by outcome.")
    failed: int
    left_over: int
    disabled: int
    success_rate: float | None = Field(
        description="The part of the others than `disabled` that was delivered, 0 to 1."
    )
    p50_ms: int | None = Field(
        description="In how long half of the last attempts were answered, at most: a `withinMs` of "
        "`answers`; null above the highest, or where there were none.",
    )
    p95_ms: int | None = Field(description="In how long 95 % were.")
    answers: list[AnsweredWithin] = Field(
        description="The last attempts of events that were settled, by how long they took."
    )

    @classmethod
    def of(cls, tally: DeliveryTally, to_ms: int) -> Self:
        """The document of a tally that ends at `to_ms`."""
        counts = zip((*TOOK_MS_BOUNDS, None), tally.took, strict=True)
        return cls(
            from_=tally.start_ms,
            to=to_ms,
            delivered=tally.delivered,
            failed=tally.failed,
            left_over=tally.left_over,
            disabled=tally.disabled,
            success_rate=tally.success_rate,
            p50_ms=_bound(tally.percentile_ms(0.5)),
            p95_ms=_bound(tally.percentile_ms(0.95)),
            answers=[AnsweredWithin(within_ms=bound, count=count) for bound, count in counts],
        )


def _bound(at_most_ms: float | None) -> int | None:
    return None if at_most_ms is None or math.isinf(at_most_ms) else int(at_most_ms)


class MissedHourDocument(Document):
    """An hour of event time in which events were missed."""

    from_: Moment = Field(serialization_alias="from")
    to: Moment = Field(description="The end of the hour; of the one that runs, the present.")
    missed: int = Field(description="Events that no live delivery has brought.")
    failed: int
    left_over: int
    disabled: int
    is_replayed: bool = Field(
        description="Replays of the time of all that were missed have COMPLETED since, with no "
        "failures left."
    )

    @classmethod
    def of(cls, hour: MissedHour, now_ms: int) -> Self:
        """The document of an hour as of `now_ms`."""
        return cls(
            from_=hour.start_ms,
            to=min(hour.end_ms, now_ms),
            missed=hour.missed,
            failed=hour.failed,
            left_over=hour.left_over,
            disabled=hour.disabled,
            is_replayed=hour.is_replayed,
        )


class MissedDocument(Document):
    """The events that a webhook has missed, as far back as they can be replayed."""

    model_config = example(
        {
            "missed": 60,
            "unreplayed": 60,
            "hours": [
                {
                    "from": "2026-11-21T07:00:00.000Z",
                    "to": "2026-11-21T08:00:00.000Z",
                    "missed": 60,
                    "failed": 12,
                    "leftOver": 48,
                    "disabled": 0,
                    "isReplayed": False,
                }
            ],
        }
    )

    missed: int = Field(description="Of all hours together.")
    unreplayed: int = Field(description="Of those that are not replayed.")
    hours: list[MissedHourDocument] = Field(description="The latest first.")

    @classmethod
    def of(cls, hours: Sequence[MissedHour], now_ms: int) -> Self:
        """The document of hours, the earliest first, as of `now_ms`."""
        return cls(
            missed=sum(hour.missed for hour in hours),
            unreplayed=sum(hour.missed for hour in hours if not hour.is_replayed),
            hours=[MissedHourDocument.of(hour, now_ms) for hour in reversed(hours)],
        )
