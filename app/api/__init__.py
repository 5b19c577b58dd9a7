"""HTTP in: webhooks are registered, events taken, replays asked for and followed."""
