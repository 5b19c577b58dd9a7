"""Worker processes, which claim replays and deliver their events."""
