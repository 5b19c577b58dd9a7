"""The pure part of the audit: decoded reports, their comparison, and its result."""
