"""The registry of a single broker, in files of its data directory."""
