"""Jars from Maven Central, fetched once per machine."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FETCH_S: Final = 300

_NO_DEPENDENCIES: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


class JarsUnavailable(Exception):
    """The jars cannot be fetched; the message is the reason."""


def fetch_jars(name: str, dependencies: Sequence[str], *, are_alone: bool = False) -> Path:
    """Return the folder of jars `GROUP:ARTIFACT:VERSION`, with their dependencies unless alone.

    Raises:
        JarsUnavailable: Maven is missing, or cannot download them.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind-bench"
    folder = cache / name
    if not folder.exists():
        _fetch(folder, dependencies, are_alone)
    return folder


def _fetch(folder: Path, dependencies: Sequence[str], are_alone: bool) -> None:
    """Download the jars to the folder, which appears when it is complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable("Maven is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        (Path(work) / "pom.xml").write_text(_pom(dependencies, are_alone))
        command = [maven, "--batch-mode", "--quiet", "--file", f"{work}/pom.xml"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        try:
            subprocess.run(
                [*command, *goal],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=FETCH_S,
            )
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            raise JarsUnavailable("Maven cannot download it") from error
        (Path(work) / "jars").rename(folder)


def _pom(dependencies: Sequence[str], are_alone: bool) -> str:
    tags = "".join(_dependency(each, are_alone) for each in dependencies)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rewind</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{tags}</dependencies></project>"
    )


def _dependency(coordinates: str, is_alone: bool) -> str:
    group, artifact, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{_NO_DEPENDENCIES if is_alone else ''}</dependency>"
    )
