"""Why a value in Avro cannot be read, by what its reader can do.

LogbrokerError
├── RegistryUnavailable         ask again later: the registry does not say which schema it is
└── UndecodableValue            pass the value over: it will never be readable
    └── UnknownSchema           no schema has the id that the value names
"""

from logbroker.errors import LogbrokerError


class RegistryUnavailable(LogbrokerError):
    """The schema registry did not answer, or not as one does."""


class UndecodableValue(LogbrokerError):
    """Bytes that are not what their schema says, or a schema that nobody can read with."""


class UnknownSchema(UndecodableValue):
    """The registry has no schema of this id."""
