"""Bodies of the route that lists samples of the log."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document, Moment
from app.domain.log_samples import (
    LogSample,
    SampleSpan,
    Series,
    SeriesKind,
    level_intervals,
    written_intervals,
)
from app.http.request_bodies import example


class LogSampleDocument(Document):
    """What was read from the log in an interval. Fields of the other kind are null."""

    from_: Moment = Field(serialization_alias="from")
    to: Moment
    written: int | None = Field(description="Messages written to the topic in this time.")
    bytes: int | None = Field(description="The topic's size on disk at the end, if known.")
    lag: int | None = Field(description="The highest lag of the group in this time.")


class LogSamplesDocument(Document):
    """A topic or consumer group over time, oldest first. Intervals without samples are left out."""

    model_config = example(
        {
            "kind": "topic",
            "name": "delivery_log",
            "span": "minute",
            "items": [
                {
                    "from": "2026-11-21T09:02:00.000Z",
                    "to": "2026-11-21T09:03:00.000Z",
                    "written": 1240,
                    "bytes": 8123904,
                    "lag": None,
                }
            ],
        }
    )

    kind: SeriesKind
    name: str = Field(description="Empty: all topics, or all groups.")
    span: SampleSpan
    items: list[LogSampleDocument]

    @classmethod
    def of(
        cls, series: Series, span: SampleSpan, samples: tuple[LogSample, ...], present_ms: int
    ) -> Self:
        """The document of a series; of a topic, the first sample only starts the first interval."""
        if series.kind is SeriesKind.TOPIC:
            intervals = zip(written_intervals(samples, span, present_ms), samples[1:], strict=True)
            items = [
                LogSampleDocument(
                    from_=each.from_ms,
                    to=each.to_ms,
                    written=each.value,
                    bytes=sample.bytes,
                    lag=None,
                )
                for each, sample in intervals
            ]
        else:
            levels = [(each.start_ms, each.value) for each in samples]
            items = [
                LogSampleDocument(
                    from_=each.from_ms, to=each.to_ms, written=None, bytes=None, lag=each.value
                )
                for each in level_intervals(levels, span)
            ]
        return cls(kind=series.kind, name=series.name, span=span, items=items)
