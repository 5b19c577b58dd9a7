"""Why an Avro value cannot be decoded, by what the reader can do.

LogbrokerError
├── SchemaRegistryUnavailable   retry later: the schema cannot be looked up
└── UndecodableValue            skip the value: it can never be decoded
    └── UnknownSchema           no schema has the id in the value
"""

from logbroker.errors import LogbrokerError


class SchemaRegistryUnavailable(LogbrokerError):
    """The schema registry is unreachable, or its response is invalid."""


class UndecodableValue(LogbrokerError):
    """The bytes do not match their schema, or the schema cannot be used."""


class UnknownSchema(UndecodableValue):
    """The registry has no schema of this id."""
