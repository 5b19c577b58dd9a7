"""What the HTTP API and the console share: problems, request bodies, limits, the server."""
