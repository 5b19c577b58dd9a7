"""Mail out: the only package that connects to a mail server."""
