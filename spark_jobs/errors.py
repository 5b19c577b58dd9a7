"""Every error that the pipeline raises on purpose, grouped by what the one who meets it can do.

PipelineError
├── InvalidOption          the user changes an option; the message names it, its value, what may be
├── UnsupportedStorage     the operator keeps the tables elsewhere
├── StorageFailed          run it again once the store of the tables does what it is asked
├── NewerTable             run a newer Rewind: such a one has written the table
├── SourceFailed           run it again once the log, or the registry, answers
├── SparkNotStarted        mend what Spark complains of: no Java, or no master at that address
├── TasksFailed            run it again; should it fail again, look at what executors say
├── DataLost               decide: `failOnDataLoss` off goes on with what there is
├── TopicReplaced          decide: the topic was made anew, and its offsets began again
├── RunSuperseded          nothing: another run has done the work, and this one left nothing
├── CorruptTable           restore the file of the table that it names
└── RefusedByService       the operator mends what the replay service says
"""

from typing import Final


class PipelineError(Exception):
    """The root: nothing raises it as such."""


class InvalidOption(PipelineError):
    """An option is missing, malformed or contradicts another."""


class UnsupportedStorage(PipelineError):
    """Tables cannot be kept safely under a URI of this kind."""


class StorageFailed(PipelineError):
    """The store of a table did not answer, has no room, or does not let this user in."""


class NewerTable(PipelineError):
    """A manifest has a format that this program does not know."""


class SourceFailed(PipelineError):
    """The log or the schema registry did not answer, or refused, for longer than was allowed."""


class SparkNotStarted(PipelineError):
    """There is no session: Spark, or the cluster, does not start what the job needs."""


class TasksFailed(PipelineError):
    """Tasks failed as often as Spark may try them: executors died, or an error nobody foresaw."""


class DataLost(PipelineError):
    """Records that were asked for are gone, or cannot be read; topic, partition and range."""


class TopicReplaced(PipelineError):
    """A topic's offsets end before those that were read of it already, or its id is another."""


class RunSuperseded(PipelineError):
    """Another run committed first what this one wanted to; what this one wrote is not visible."""


class CorruptTable(PipelineError):
    """A manifest does not parse, or one of the chain is missing."""


class RefusedByService(PipelineError):
    """The replay service answers no to what a job asks of it."""


REASON_CHARS_MAX: Final = 300
"""Reasons quote what they are about, which may be of any length."""


class UndecodableRecord(ValueError):
    """A record is not what its topic holds; the text says why."""

    @property
    def reason(self) -> str:
        """The text, not longer than `REASON_CHARS_MAX`."""
        return str(self)[:REASON_CHARS_MAX]
