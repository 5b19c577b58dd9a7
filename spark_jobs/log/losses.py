"""Records that were asked for and are not in the log any more, or cannot be read."""

from dataclasses import dataclass, field

from spark_jobs.errors import DataLost
from spark_jobs.log.ranges import OffsetRange


@dataclass
class Losses:
    """What was passed over; where nothing may be, the first loss ends the reading."""

    are_allowed: bool
    ranges: list[OffsetRange] = field(default_factory=list)

    @property
    def offsets(self) -> int:
        """How many offsets are missing: no fewer than records are."""
        return sum(each.size for each in self.ranges)

    def add(self, lost: OffsetRange, why: str) -> None:
        """Note that these offsets cannot be read.

        Raises:
            DataLost: nothing may be lost.
        """
        if not self.are_allowed:
            raise DataLost(
                f"{lost} cannot be read: {why}; failOnDataLoss=false goes on with what there is"
            )
        if lost.size > 0:
            self.ranges.append(lost)
