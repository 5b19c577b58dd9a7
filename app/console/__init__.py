"""The operators' console: HTML pages with the same access rules as the API."""
