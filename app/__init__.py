"""Rewind, the replay service: what a webhook missed is delivered again."""
