"""The documentation builds as a site, without a broken link."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_site_builds_with_its_reference_pages(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", tmp_path],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "index.html").is_file()
    assert "rewind replay" in (tmp_path / "reference/rewind/index.html").read_text()
    assert '"/replays"' in (tmp_path / "reference/openapi.json").read_text()
