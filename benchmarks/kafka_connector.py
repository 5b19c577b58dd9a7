"""The jars of Spark's own Kafka connector, as Maven fetches them, once for each machine."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

FETCH_S: Final = 300
VERSION: Final = "4.2.0"
"""The newest that Maven Central has beside Spark 4.3."""

JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""Spark has all else that these need."""

_NOTHING_ELSE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def connector_jars() -> list[Path]:
    """The jars; none where Maven is missing, or cannot reach them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rewind-bench"
    folder = cache / f"kafka-connector-{VERSION}"
    if not folder.exists() and not _fetch(folder):
        return []
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> bool:
    """Whether the folder is there now, in full."""
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
        f"<version>{version}</version>{_NOTHING_ELSE}</dependency>"
        for group, name, version in JARS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rewind</groupId><artifactId>measured-beside</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
