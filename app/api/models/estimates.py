"""The body of a dry run."""

from pydantic import Field

from app.api.models.documents import Document
from app.http.request_bodies import example


class EstimateDocument(Document):
    """The estimate of a replay that would start now."""

    model_config = example(
        {
            "partition": 3,
            "startOffset": 120_400,
            "endOffset": 188_020,
            "events": 16_310,
            "bytes": 5_872_000,
            "isExact": True,
            "isUpperBound": False,
            "unreadableBatches": 0,
            "unreadableOffsets": 0,
            "estimatedSeconds": 20.4,
        }
    )

    partition: int
    start_offset: int
    end_offset: int = Field(description="The first offset after the range.")
    events: int
    bytes: int = Field(description="Total size of the bodies, without HTTP.")
    is_exact: bool = Field(
        description="False: extrapolated from samples of a long range, or an upper bound."
    )
    is_upper_bound: bool = Field(
        description="True if, with `only: failed`, some outcomes of live deliveries could not be "
        "read: `events` may include delivered events."
    )
    unreadable_batches: int = Field(
        description="The batches of the log that cannot be read, of those that the estimate met. "
        "A replay skips them; `events` does not include theirs."
    )
    unreadable_offsets: int = Field(
        description="The offsets of these batches. How many events they held is unknown."
    )
    estimated_seconds: float = Field(
        description="Without retries, and without waiting for a worker."
    )
