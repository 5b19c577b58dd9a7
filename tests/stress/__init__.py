"""A run of tests on a machine that is busy and stalls: `python -m tests.stress COMMAND...`."""
