"""The group coordinator: coordination slots, storage, timers and delayed requests."""
