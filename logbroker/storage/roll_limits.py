"""When a log rolls, by its topic's settings: at which size, and after which time."""

from random import randrange

from logbroker.config import LogConfig
from logbroker.storage.offset_index import INDEX_INTERVAL_BYTES
from logbroker.storage.time_index import TimeIndex


def roll_bytes(config: LogConfig) -> int:
    """Return the size of a segment at which the log rolls.

    It is `segment.bytes`, or less if the indexes of such a segment could exceed
    `segment.index.bytes`.
    """
    indexed = config.segment_index_bytes // TimeIndex.ENTRY.size * INDEX_INTERVAL_BYTES
    return min(config.segment_bytes, indexed)


def roll_ms(config: LogConfig) -> int:
    """Return the age of a segment at which the log rolls.

    It is `segment.ms` less a random part of `segment.jitter.ms`. A compacted log rolls after
    `max.compaction.lag.ms` at the latest, since its active segment is not compacted.
    """
    age_ms = config.segment_ms
    if config.is_compacted:
        age_ms = min(age_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, age_ms)
    return age_ms - (randrange(jitter_ms) if jitter_ms else 0)  # noqa: S311  # no secret
