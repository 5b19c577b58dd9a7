"""The only door for HTTP out: sign, guard, send, ask for proofs; and receive on the other side."""
