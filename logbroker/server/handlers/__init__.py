"""Handlers of every API except Produce and Fetch: a request message in, a response message out."""
