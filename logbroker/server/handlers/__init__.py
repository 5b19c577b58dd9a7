"""What this broker answers to each API but Produce and Fetch: a message in, a message out."""
