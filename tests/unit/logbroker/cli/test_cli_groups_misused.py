import pytest
from click.testing import CliRunner

from logbroker.cli.groups import groups


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["describe", "g", "--nonsense"],
        ["delete"],
        ["reset"],
        ["reset", "g", "--all-topics"],
        ["reset", "g", "--to-earliest"],
        ["reset", "g", "--to-earliest", "--to-latest", "--all-topics"],
        ["reset", "g", "--to-earliest", "--all-topics", "--topic", "t"],
        ["reset", "g", "--to-offset", "-1", "--all-topics"],
        ["reset", "g", "--to-time", "yesterday", "--all-topics"],
        ["reset", "g", "--to-time", "2026-11-21T08:00:00", "--all-topics"],
        ["reset", "g", "--to-earliest", "--topic", "t:"],
        ["reset", "g", "--to-earliest", "--topic", ":1"],
        ["reset", "g", "--to-earliest", "--topic", "t:one"],
    ],
)
def test_misuse_of_groups_ends_with_two(arguments: list[str]) -> None:
    misused = CliRunner().invoke(groups, arguments)
    assert misused.exit_code == 2
    assert misused.stdout == ""
