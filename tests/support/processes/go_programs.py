"""Go modules from the module proxy, and programs built with them, once per machine."""

import functools
import hashlib
import json
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

_QUICK_BUILD: Final = (
    "-trimpath",
    # Without optimization and debugging data: the standard library is compiled, too.
    "-gcflags=all=-N -l -dwarf=false",
    "-ldflags=-s -w",
)


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


def find_go_module(module: str, checksum: str) -> tuple[Path | None, str]:
    """Return the folder of `PATH@VERSION`, or None and why Go cannot fetch it.

    `checksum` is its line of a `go.sum`. Skip the test if Go is not installed; in CI, fail.
    """
    go = require_program("go", "golang-go")
    # Outside of every module; Go has a cache of its own.
    downloaded = _run_go(go, Path("/"), "mod", "download", "-json", module)
    found = json.loads(downloaded.stdout or "{}")
    if downloaded.returncode != 0:
        return None, (found.get("Error") or downloaded.stderr.strip())[:300]
    assert found["Sum"] == checksum, f"{module} has the checksum {found['Sum']}"
    return Path(found["Dir"]), ""


def _run_go(go: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [go, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "CGO_ENABLED": "0",
            "GOFLAGS": "",
            "GOGC": "off",  # of the compiler, which needs little memory for a package
            "GOTOOLCHAIN": "local",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_S,
    )


@functools.cache
def _build(go: str, folder: Path) -> tuple[Path | None, str]:
    """Return the program or why it is missing."""
    run = functools.partial(_run_go, go, folder)
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
            built = run("build", *_QUICK_BUILD, "-o", f"{program}.building", ".")
            assert built.returncode == 0, built.stderr
            Path(f"{program}.building").rename(program)
    return program, ""
