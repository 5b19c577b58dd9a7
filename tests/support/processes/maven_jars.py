"""Java servers as jars from Maven Central, downloaded once per machine."""

import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.kafka.zookeeper import find_java
from tests.support.processes.downloads import alone_in_cache
from tests.support.processes.server_process import require_program

DOWNLOAD_S: Final = 300
"""The time limit of a download. The largest server has 80 MB."""

LOG4J_TO_STDERR: Final = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.Target=System.err
log4j.appender.stderr.follow=true
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %c{1} %m%n
"""
"""A configuration file of log4j 1 and reload4j."""

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rewind</groupId><artifactId>under-test</artifactId><version>1</version>
  <dependencies>
%s
  </dependencies>
</project>
"""

_NOTHING_ELSE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def require_jars(
    name: str, dependencies: Sequence[str], *, java_least: int, are_alone: bool = False
) -> Path:
    """Return the folder with a server's jars. Skip the test if Maven Central is unreachable.

    A dependency is `GROUP:ARTIFACT:VERSION`, or `GROUP:ARTIFACT:VERSION:TYPE`. Those that are alone
    come without what they depend on themselves.
    """
    require_program("mvn", "maven")
    folder, reason = _jars(name, tuple(dependencies), java_least, are_alone)
    if folder is None:
        pytest.skip(f"{name} cannot be run: {reason}")
    return folder


@functools.cache
def _jars(
    name: str, dependencies: tuple[str, ...], java_least: int, are_alone: bool
) -> tuple[Path | None, str]:
    """Return the jars' folder or why it is missing. They are downloaded once per machine."""
    java = _java_version()
    if java < java_least:
        return None, f"it needs Java {java_least}, and here is {java}"
    with alone_in_cache() as cache:
        folder = cache / name
        if not folder.exists():
            reason = _fetch(folder, dependencies, are_alone)
            if reason is not None:
                return None, reason
    return folder, ""


def _java_version() -> int:
    printed = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?([0-9]+)', printed.stderr)
    return int(found[1]) if found else 0


def _fetch(folder: Path, dependencies: Sequence[str], are_alone: bool) -> str | None:
    """Fill the folder with Maven and return the error. The folder is created atomically."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        tags = [_dependency(each, are_alone) for each in dependencies]
        (Path(work) / "pom.xml").write_text(_POM % "\n".join(tags))
        command = [
            "mvn",
            "--batch-mode",
            "--quiet",
            "--file",
            f"{work}/pom.xml",
        ]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        try:
            subprocess.run(
                [*command, *goal],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=DOWNLOAD_S,
            )
        except subprocess.TimeoutExpired:
            return f"Maven did not fetch it within {DOWNLOAD_S} s"
        except subprocess.CalledProcessError as error:
            reason = error.stdout.partition("[ERROR]")[2].partition("\n")[0]
            return f"Maven cannot fetch it:{reason[:300]}"
        (Path(work) / "jars").rename(folder)
    return None


def _dependency(coordinates: str, is_alone: bool) -> str:
    tags = ("groupId", "artifactId", "version", "type")
    values = zip(tags, coordinates.split(":"), strict=False)
    printed = "".join(f"<{tag}>{value}</{tag}>" for tag, value in values)
    return f"<dependency>{printed}{_NOTHING_ELSE if is_alone else ''}</dependency>"
