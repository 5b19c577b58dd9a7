"""The store as jobs of the data pipeline see it, and who looks after them."""

from app.domain.pipeline import PipelineRun
from app.store import pipeline_runs
from app.store.calls import Calls
from app.store.pages import PAGE_LIMIT, Page


class PipelineCalls(Calls):
    """How runs of jobs ended."""

    def add_run(self, run: PipelineRun) -> tuple[PipelineRun, bool]:
        """The run, and whether it is new; the last fifty of its job and subject are kept.

        One of the same job and subject that began at the same moment is the same, told again.
        """
        return self._database.write(lambda db: pipeline_runs.add(db, run))

    def runs_of(
        self, job: str, subject: str, cursor: str | None = None, limit: int = PAGE_LIMIT
    ) -> Page[PipelineRun]:
        """A page of the runs of a job with a subject, the last first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(
            lambda db: pipeline_runs.newest_of(db, job, subject, cursor, limit)
        )

    def latest_runs(
        self,
        job: str | None = None,
        subject: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
    ) -> Page[PipelineRun]:
        """A page of the last run of each job and subject, of one job or one subject, or of all.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(
            lambda db: pipeline_runs.latest_of_each(db, job, subject, cursor, limit)
        )
