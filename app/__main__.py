"""`python -m app` runs the `rewind` command."""

from app.cli import main

main(prog_name="rewind")
