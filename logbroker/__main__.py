"""Runs the `logbroker` command with `python -m logbroker`."""

from logbroker.cli import main

main(prog_name="logbroker")
