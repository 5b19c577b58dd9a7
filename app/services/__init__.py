"""Use cases of the service, shared by the HTTP API and the console; they know no HTTP."""
