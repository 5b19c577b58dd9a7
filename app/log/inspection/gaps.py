"""Which figures are missing, and why: a right that is not there costs a figure, not the page."""

from app.log.inspection.figures import Gap


class Gaps:
    """Gathers one gap for each figure, with the first reason that was met."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, figure: str, reason: str) -> None:
        """Say why a figure is missing somewhere."""
        self._reasons.setdefault(figure, reason)

    def told(self) -> tuple[Gap, ...]:
        """All of them, in the order in which they were met."""
        return tuple(Gap(figure, reason) for figure, reason in self._reasons.items())
