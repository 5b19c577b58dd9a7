"""Narrows ranges of offsets by a query's filters.

Spark still applies every filter: narrowed ranges may have records that do not pass.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from logbroker.client.raw.parsing.metadata import TopicPartition
from spark_jobs.offsets.ranges import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARED: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda column, value: column == value,
    EqualNullSafe: lambda column, value: column == value,
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
    In: lambda column, value: column in value,
}
_FROM: Final = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, In)
"""Filters with a lower bound: their value, or the least of them."""

_UP_TO: Final = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, In)


@dataclass(frozen=True)
class Narrowing:
    """The usable filters of a query."""

    on_partitions: tuple[Filter, ...] = ()
    """Filters on topic or partition."""

    offset_min: int | None = None
    offset_max: int | None = None
    time_min_ms: int | None = None
    """No record before the first one of this time or later passes.

    There is no maximum time: records with earlier times may follow a record with a late one.
    """

    def lookup_times(self, ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
        """The times to look up."""
        if self.time_min_ms is None:
            return {}
        return {TopicPartition(each.topic, each.partition): self.time_min_ms for each in ranges}

    def narrow(
        self, ranges: Iterable[OffsetRange], found: Mapping[TopicPartition, int | None]
    ) -> list[OffsetRange]:
        """The ranges to read; `found` are the offsets of `lookup_times`, looked up after the ends.

        A time without an offset means that no record of the range passes.
        """
        return [self._narrow(each, found) for each in ranges if self._passes(each)]

    def _passes(self, one: OffsetRange) -> bool:
        topic_partitions = {"topic": one.topic, "partition": one.partition}
        return all(
            _COMPARED[type(each)](topic_partitions[_column(each)], _value(each))
            for each in self.on_partitions
        )

    def _narrow(self, one: OffsetRange, found: Mapping[TopicPartition, int | None]) -> OffsetRange:
        starts, ends = [one.start], [one.end]
        if self.offset_min is not None:
            starts.append(self.offset_min)
        if self.offset_max is not None:
            ends.append(self.offset_max + 1)
        if self.time_min_ms is not None:
            first = found[TopicPartition(one.topic, one.partition)]
            starts.append(one.end if first is None else first)
        return replace(one, start=max(starts), end=min(ends))


def parse_filters(filters: Iterable[Filter]) -> Narrowing:
    """The usable ones of filters that all apply; the others are ignored."""
    usable = [each for each in filters if type(each) in _COMPARED and _values(each)]
    of_offset = [each for each in usable if _column(each) == "offset"]
    of_time = [each for each in usable if _column(each) == "timestamp"]
    time_min = max(_least(of_time), default=None)
    return Narrowing(
        on_partitions=tuple(each for each in usable if _column(each) in ("topic", "partition")),
        offset_min=max(_least(of_offset), default=None),
        offset_max=min(_greatest(of_offset), default=None),
        time_min_ms=None if time_min is None else _floor_ms(time_min),
    )


def _least(filters: Iterable[Filter]) -> list[Any]:
    return [min(_values(each)) for each in filters if isinstance(each, _FROM)]


def _greatest(filters: Iterable[Filter]) -> list[Any]:
    return [max(_values(each)) for each in filters if isinstance(each, _UP_TO)]


def _floor_ms(time: datetime) -> int | None:
    """Milliseconds since 1970; None if negative, which has another meaning for brokers."""
    ms = (time - _EPOCH) // timedelta(milliseconds=1)
    return ms if ms >= 0 else None


def _values(one: Filter) -> tuple[Any, ...]:
    """The values that the column is compared with; none if their type is not the column's."""
    kinds: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
    value = _value(one)
    values = tuple(value) if isinstance(one, In) else (value,)
    if all(isinstance(each, kinds.get(_column(one), NoneType)) for each in values):
        return () if any(getattr(each, "tzinfo", UTC) is None for each in values) else values
    return ()


def _column(one: Filter) -> str:
    """The column of a filter; empty for fields of structs."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _value(one: Filter) -> Any:
    return getattr(one, "value", None)
