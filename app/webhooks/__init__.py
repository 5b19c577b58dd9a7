"""The only door for HTTP out: sign, guard and send webhooks, and receive them on the other side."""
