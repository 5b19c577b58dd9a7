"""Bodies of the routes of the restore job."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment
from app.domain.model import AwaitedRestore, Replay
from app.http.request_bodies import RequestBody, example


class Restoration(RequestBody):
    """The offsets of a replay's events in `delivery_archive`."""

    model_config = example({"partition": 3, "startOffset": 1_200, "endOffset": 1_950})

    partition: int = Field(strict=True, ge=0, le=2**31 - 1)
    start_offset: int = Field(strict=True, ge=0, le=2**63 - 1)
    end_offset: int = Field(
        strict=True, ge=0, le=2**63 - 1, description="The first offset after them."
    )


class Missing(RequestBody):
    """What of a replay's window could not be restored."""

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
    below: int = Field(description="The offset of `delivery_log` that all its events are below.")
    missing: str | None = Field(description="The last report of what is missing.")
    created_at: Moment

    @classmethod
    def of(cls, replay: Replay, awaits: AwaitedRestore) -> Self:
        """The document of a replay and its awaited restore."""
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
    """The lowest needed offset of a partition of `delivery_archive`."""

    partition: int
    start_offset: int


class RestorationsDocument(Document):
    """The replays that wait for a restore, and the restored records that are needed."""

    items: list[AwaitedReplayDocument]
    further_partitions: list[int] = Field(
        description="Partitions of waiting replays beyond `items`."
    )
    needed: list[NeededDocument] = Field(
        description="The lowest offset that a replay may still read; partitions that are not "
        "listed are not needed."
    )
