"""The pure heart of the service: what a replay is, and every rule about it."""
