"""The REST interface of the registry: requests, routes and responses; no I/O."""
