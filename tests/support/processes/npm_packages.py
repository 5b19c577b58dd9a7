"""Files of npm packages, downloaded once per machine."""

import functools
import hashlib
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.support.processes.downloads import alone_in_cache
from tests.support.processes.server_process import require_program

DOWNLOAD_S: Final = 120


def find_npm_file(package: str, member: str, sha256: str) -> tuple[Path | None, str]:
    """Return a file of `NAME@VERSION`, or None and why npm cannot fetch it.

    Skip the test if npm is not installed; in CI, fail. Fail it if the file has another SHA-256.
    """
    require_program("npm", "npm")
    return _file(package, member, sha256)


@functools.cache
def _file(package: str, member: str, sha256: str) -> tuple[Path | None, str]:
    with alone_in_cache() as cache:
        file = cache / re.sub("[@/]+", "-", f"{package}/{member}").strip("-")
        if not file.exists():
            reason = _fetch(package, member, file)
            if reason is not None:
                return None, reason
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == sha256, f"{file} is another file: its SHA-256 is {digest}"
    return file, ""


def _fetch(package: str, member: str, file: Path) -> str | None:
    """Download the package with npm and return the error. The file is created atomically."""
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        try:
            subprocess.run(
                ["npm", "pack", package, "--loglevel=error", "--ignore-scripts"],
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=DOWNLOAD_S,
            )
        except subprocess.TimeoutExpired:
            return f"npm did not fetch {package} within {DOWNLOAD_S} s"
        except subprocess.CalledProcessError as error:
            return f"npm cannot fetch {package}: {error.stderr.strip()[:300]}"
        (archive,) = Path(work).glob("*.tgz")
        with tarfile.open(archive) as content:
            content.extract(f"package/{member}", work, filter="data")
        (Path(work) / "package" / member).rename(file)
    return None
