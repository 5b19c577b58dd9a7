"""Programs in Go, built with modules from Go's module proxy once per machine."""

import functools
import hashlib
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes.downloads import alone_in_cache
from tests.support.processes.server_process import require_program

BUILD_S: Final = 300
"""The time limit of the downloads, and of the build."""


def require_go_program(folder: Path) -> Path:
    """Return the program of the Go module in `folder`.

    Skip the test if Go is too old for the module, or the module proxy is unreachable. Fail it if
    the program does not compile.
    """
    go = require_program("go", "golang-go")
    program, reason = _build(go, folder)
    if program is None:
        pytest.skip(f"{folder.name} cannot be built: {reason}")
    return program


@functools.cache
def _build(go: str, folder: Path) -> tuple[Path | None, str]:
    """Return the program or why it is missing."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [go, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_S,
        )

    needed = re.search(r"^go (\d+)\.(\d+)", (folder / "go.mod").read_text(), re.MULTILINE)
    found = re.match(r"go(\d+)\.(\d+)", run("env", "GOVERSION").stdout)
    assert needed, "go.mod names the least version of Go"
    if found is None or tuple(map(int, found.groups())) < tuple(map(int, needed.groups())):
        return None, f"it needs {needed[0]}, and here is {found[0] if found else 'an unknown one'}"
    sources = b"\0".join(path.read_bytes() for path in sorted(folder.iterdir()))
    name = f"{folder.name}-{hashlib.sha256(sources + found[0].encode()).hexdigest()[:16]}"
    with alone_in_cache() as cache:
        program = cache / name
        if not program.exists():
            downloaded = run("mod", "download")
            if downloaded.returncode != 0:
                return None, downloaded.stderr.strip()[:300]
            built = run("build", "-trimpath", "-o", f"{program}.building", ".")
            assert built.returncode == 0, built.stderr
            Path(f"{program}.building").rename(program)
    return program, ""
