"""The delivery engine that the live path and the replays share."""
