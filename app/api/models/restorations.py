"""Bodies of the routes of the restore job."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment, RequestBody, example
from app.domain.model import AwaitedRestore, Replay


class Restoration(RequestBody):
    """Where in `delivery_archive` the events of a replay lie."""

    model_config = example({"partition": 3, "startOffset": 1_200, "endOffset": 1_950})

    partition: int = Field(strict=True, ge=0, le=2**31 - 1)
    start_offset: int = Field(strict=True, ge=0, le=2**63 - 1)
    end_offset: int = Field(
        strict=True, ge=0, le=2**63 - 1, description="The first offset behind them."
    )


class Missing(RequestBody):
    """What of a replay's window could not be found."""

    model_config = example({"missing": "the table ends at offset 900 of delivery_log-3"})

    missing: str = Field(min_length=1, max_length=2_000)


class AwaitedReplayDocument(Document):
    """A replay that waits for a restore."""

    model_config = example(
        {
            "replayId": "rpl_7sKx2mQw9fLc",
            "webhookId": "wh_2yPqkM5dTn4v",
            "from": "2026-10-01T06:00:00.000Z",
            "to": "2026-10-01T08:00:00.000Z",
            "partition": 3,
            "below": 188_020,
            "missing": None,
            "createdAt": "2026-11-21T08:10:00.000Z",
        }
    )

    replay_id: str
    webhook_id: str
    from_: Moment = Field(serialization_alias="from")
    to: Moment
    partition: int = Field(description="Of `delivery_log`, and of `delivery_archive`.")
    below: int = Field(description="The offset of `delivery_log` that all its events were below.")
    missing: str | None = Field(description="What was said to be missing last.")
    created_at: Moment

    @classmethod
    def of(cls, replay: Replay, awaits: AwaitedRestore) -> Self:
        """The document of a replay, and of what it waits for."""
        return cls(
            replay_id=replay.id,
            webhook_id=replay.webhook_id,
            from_=replay.window.from_ms,
            to=replay.window.to_ms,
            partition=awaits.partition,
            below=awaits.below,
            missing=awaits.missing,
            created_at=replay.created_ms,
        )


class NeededDocument(Document):
    """From where on a partition of `delivery_archive` is needed."""

    partition: int
    start_offset: int


class RestorationsDocument(Document):
    """What there is to restore, and what of the restored may be deleted."""

    items: list[AwaitedReplayDocument]
    further_partitions: list[int] = Field(
        description="Of more that wait, and were too many for `items`."
    )
    needed: list[NeededDocument] = Field(
        description="By partition, the lowest offset that a replay may still read; partitions that "
        "are not named are not needed by any."
    )
