"""What requests and answers look like: JSON in camelCase, times in RFC 3339."""
