"""Files of tests that are imported only where they are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WITH_FIXTURE = """\
import pytest

@pytest.fixture(scope="module")
def opened():
    yield
    print("closed")

def test_chosen(opened): pass

@pytest.mark.xdist_group("shared")
def test_chosen_in_a_group(opened): pass

def test_other(): pass
"""


def run(folder: Path, *options: str) -> str:
    """Run the tests of a folder that are named `chosen`, in one worker, and return the output."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup"]
    plugins = ("-p", "no:schemathesis", "-p", "tests.support.processes.parallel_runs")
    done = subprocess.run(
        [*command, *plugins, "--rootdir", str(folder), "-k", "chosen", *options, "."],
        cwd=folder,
        # Without the options of the outer run.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.processes
def test_selected_tests_of_all_files_are_run_once(tmp_path: Path) -> None:
    files = {
        "first/test_a.py": WITH_FIXTURE,
        # Nothing of it is run, and the next file is in another folder.
        "first/test_b.py": "def test_other(): pass\n",
        "second/test_c.py": "def test_chosen(): pass\n",
        "third/test_d.py": "import no_such_module\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    output = run(tmp_path)
    assert "3 passed, 1 error" in output, output
    assert "No module named 'no_such_module'" in output
    assert "[100%]" in output


@pytest.mark.processes
def test_files_without_the_words_of_the_chosen_marks_are_not_imported(tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.mark.long\ndef test_chosen(): pass\n"
    (tmp_path / "test_a.py").write_text(text)
    (tmp_path / "test_b.py").write_text("import no_such_module\n")
    chosen_output = run(tmp_path, "-m", "long or hypothesis")
    assert "1 passed" in chosen_output, chosen_output
    assert "error" not in chosen_output
    assert "1 error" in run(tmp_path, "-m", "not hypothesis")
