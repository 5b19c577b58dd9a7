"""The file `operator.key` of a data directory: the operator's key, for commands on this machine.

The key's text alone, with a newline at its end; mode 0600, replaced as a whole or not at all.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

FILE_NAME: Final = "operator.key"


def read(data_dir: Path) -> str:
    """The text of the file.

    Raises:
        OSError: it is not there, or not for us to read.
    """
    return (data_dir / FILE_NAME).read_text(encoding="ascii", errors="replace").strip()


def write(data_dir: Path, token: str) -> None:
    """Put a key into the file.

    Raises:
        OSError: it cannot be written.
    """
    # Its mode is 0600 from the beginning.
    descriptor, name = tempfile.mkstemp(dir=data_dir, prefix=FILE_NAME)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(data_dir / FILE_NAME)
