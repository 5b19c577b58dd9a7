"""`python -m tests.stress.busy_core`: use one core until the parent is gone."""

import os


def occupy_core() -> None:
    """Return when another process becomes the parent."""
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100_000))


if __name__ == "__main__":
    occupy_core()
