"""Options and errors of `rewind-jobs restore`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_jobs.cli import main


@pytest.mark.parametrize(
    ("options", "exit_code", "word"),
    [
        ((), 2, "--api, or --webhook"),
        (("--api", "http://127.0.0.1:1", "--webhook", "wh"), 2, "required together"),
        (("--webhook", "wh", "--from", "2026-01-02", "--to", "2026-01-02"), 2, "after --from"),
        (("--api", "http://127.0.0.1:1", "--once"), 1, "http://127.0.0.1:1 does not answer"),
    ],
)
def test_invalid_options_are_rejected(
    tmp_path: Path, options: tuple[str, ...], exit_code: int, word: str
) -> None:
    arguments = ["restore", "--table", str(tmp_path), "--bootstrap-servers", "127.0.0.1:1"]
    result = CliRunner().invoke(main, [*arguments, "--master", "local[1]", *options])
    assert (result.exit_code, word in result.output) == (exit_code, True), result.output


def test_the_key_from_a_file_is_never_printed(tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    key.write_text("rwk_secret\n")
    arguments = ["restore", "--table", str(tmp_path), "--bootstrap-servers", "127.0.0.1:1"]
    arguments += ["--api", "http://127.0.0.1:1", "--api-key-file", str(key), "--once"]
    result = CliRunner().invoke(main, [*arguments, "--master", "local[1]"])
    assert result.exit_code == 1
    assert "rwk_secret" not in result.output
