"""Bodies of requests and responses: JSON in camelCase, times in RFC 3339."""
