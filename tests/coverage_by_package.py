"""`python -m tests.coverage_by_package`: line and branch coverage of each package, lowest first."""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """Print a row for each package of `.coverage`, and the total."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = ["-m", "coverage", "json", "--quiet", "-o", str(report)]
        subprocess.run([sys.executable, *command], check=True)
        files = json.loads(report.read_text())["files"]
    packages: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, file in files.items():
        summary = file["summary"]
        figures = (
            summary["covered_lines"],
            summary["num_statements"],
            summary["covered_branches"],
            summary["num_branches"],
        )
        for package in (str(Path(name).parent), "all"):
            packages[package] = [a + b for a, b in zip(packages[package], figures, strict=True)]
    print(f"{'lines':>8} {'branches':>9}  package")
    for package, counts in sorted(packages.items(), key=lambda item: share(*item[1][:2])):
        covered, lines, taken, branches = counts
        print(f"{share(covered, lines):7.1f}% {share(taken, branches):8.1f}%  {package}")


def share(part: int, whole: int) -> float:
    """Per cent; all of nothing is 100."""
    return 100 * part / whole if whole else 100.0


if __name__ == "__main__":
    main()
