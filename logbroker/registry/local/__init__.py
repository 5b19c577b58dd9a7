"""The registry of a broker that runs alone, in files of its data directory."""
