"""Translates the errors of the log's client to pipeline errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from logbroker.client.errors import ClientError
from logbroker.errors import ConfigurationError, CorruptBatch
from spark_jobs.errors import InvalidOption, SourceFailed


@contextmanager
def translate_client_errors(what: str) -> Iterator[None]:
    """Raise client errors of the block as pipeline errors; the message begins with `what`.

    Raises:
        InvalidOption: the client's properties are invalid.
        SourceFailed: the log did not answer in time, rejected a request, or is damaged.
    """
    try:
        yield
    except ConfigurationError as error:
        raise InvalidOption(f"{what}: {error}") from error
    except (ClientError, CorruptBatch) as error:
        raise SourceFailed(f"{what}: {error}") from error
