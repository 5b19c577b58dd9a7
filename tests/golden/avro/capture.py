"""Asks Java's SchemaCompatibility of Apache Avro 1.12.0 about pairs of schemas at random.

Made `compatibility.json`, with Java 17 and Maven, by

    python tests/golden/avro/capture.py
"""

import json
import subprocess
import tempfile
from pathlib import Path

from tests.support.schemas.avro_pairs import SchemaMaker

HERE = Path(__file__).parent
PAIRS = 120
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rewind</groupId><artifactId>oracle</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.0</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.13</version>
    </dependency>
  </dependencies>
</project>
"""


def main() -> None:
    pairs = [list(SchemaMaker(seed).pair()) for seed in range(PAIRS)]
    pairs += [[writer, reader] for reader, writer in pairs]
    answers = ask_java(pairs)
    lines = (
        json.dumps({"reader": reader, "writer": writer, "kinds": kinds}, separators=(",", ":"))
        for (reader, writer), kinds in zip(pairs, answers, strict=True)
    )
    (HERE / "compatibility.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def ask_java(pairs: list[list[object]]) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pom.xml").write_text(_POM)
        maven = ["mvn", "--batch-mode", "--quiet", "--file", f"{work}/pom.xml"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
        subprocess.run([*maven, *goal], check=True)
        java = ["java", "-cp", f"{work}/jars/*", str(HERE / "Oracle.java")]
        completed = subprocess.run(
            java, input=json.dumps(pairs), capture_output=True, text=True, check=True
        )
    answers: list[list[str]] = json.loads(completed.stdout)
    return answers


if __name__ == "__main__":
    main()
