"""All errors of the pipeline, with what to do about each.

PipelineError
├── InvalidOption          change the option; the message has its name, value and allowed values
├── UnsupportedStorage     store the tables elsewhere
├── StorageFailed          repair the store of the tables, and run the job again
├── NewerTable             use the newer Rewind that has written the table
├── SourceFailed           run the job again when the log, registry or service answers
├── SparkNotStarted        install Java, or correct the master's address
├── TasksFailed            run the job again; if it fails again, read the executors' logs
├── DataLost               decide whether to continue without the records (`failOnDataLoss`)
├── TopicReplaced          decide how to continue with the recreated topic
├── RunSuperseded          nothing: another run has done the work, and this one changed nothing
├── CorruptTable           restore the file of the table in the message
└── RejectedByService      resolve the problem that the replay service reports
"""

from typing import Final


class PipelineError(Exception):
    """The base class of all errors of the pipeline; never raised itself."""


class InvalidOption(PipelineError):
    """An option is missing, malformed, or contradicts another one."""


class UnsupportedStorage(PipelineError):
    """Tables cannot be stored safely at a URI of this kind."""


class StorageFailed(PipelineError):
    """The store of a table did not answer, is full, or denies access."""


class NewerTable(PipelineError):
    """A manifest has a format that this program does not support."""


class SourceFailed(PipelineError):
    """The log or a server did not answer, or rejected requests, until the timeout."""


class SparkNotStarted(PipelineError):
    """Spark or the cluster did not start the session."""


class TasksFailed(PipelineError):
    """Tasks failed after all retries: lost executors, or an unexpected error."""


class DataLost(PipelineError):
    """Requested records are gone or cannot be read; the message has partition and range."""


class TopicReplaced(PipelineError):
    """A topic ends before the offsets that were read of it, or has another id."""


class RunSuperseded(PipelineError):
    """Another run committed first; the files of this one are not visible."""


class CorruptTable(PipelineError):
    """A manifest is malformed or missing."""


class RejectedByService(PipelineError):
    """The replay service rejected a request."""


REASON_CHARS_MAX: Final = 300
"""Reasons quote values, which may be of any length."""


class UndecodableRecord(ValueError):
    """A record that cannot be parsed, with the reason; it goes to the quarantine."""

    @property
    def reason(self) -> str:
        """The message, truncated to `REASON_CHARS_MAX`."""
        return str(self)[:REASON_CHARS_MAX]
