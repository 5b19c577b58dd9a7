"""The one place where what a client of the log raises becomes what the pipeline raises."""

from collections.abc import Iterator
from contextlib import contextmanager

from logbroker.client.errors import ClientError
from logbroker.errors import ConfigurationError, CorruptBatch
from spark_jobs.errors import InvalidOption, SourceFailed


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Whatever fails at the log in here says first what could not be done.

    Raises:
        InvalidOption: the properties of the client cannot be.
        SourceFailed: the log did not answer in time, or refused, or is damaged.
    """
    try:
        yield
    except ConfigurationError as error:
        raise InvalidOption(f"{what}: {error}") from error
    except (ClientError, CorruptBatch) as error:
        raise SourceFailed(f"{what}: {error}") from error
