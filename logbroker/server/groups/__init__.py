"""Consumer groups at the broker that coordinates them: slots, storage, timers, who waits."""
