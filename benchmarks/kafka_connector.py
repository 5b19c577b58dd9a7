"""The jars of Spark's own Kafka connector, fetched by Maven and cached."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

FETCH_S: Final = 300
VERSION: Final = "4.2.0"
"""The newest version on Maven Central that works with Spark 4.3."""

JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""Spark contains their other dependencies."""

_NO_DEPENDENCIES: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def connector_jars() -> list[Path]:
    """Return the jars; none if Maven is missing or cannot download them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind-bench"
    folder = cache / f"kafka-connector-{VERSION}"
    if not folder.exists() and not _fetch(folder):
        return []
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> bool:
    """Download the jars to the folder; false if that failed."""
    maven = shutil.which("mvn")
    if maven is None:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        (Path(work) / "pom.xml").write_text(_pom())
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
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            return False
        (Path(work) / "jars").rename(folder)
    return True


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{_NO_DEPENDENCIES}</dependency>"
        for group, name, version in JARS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rewind</groupId><artifactId>bench-connector</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
