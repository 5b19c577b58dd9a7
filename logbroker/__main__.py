"""`python -m logbroker` is the `logbroker` command."""

from logbroker.cli import main

main(prog_name="logbroker")
