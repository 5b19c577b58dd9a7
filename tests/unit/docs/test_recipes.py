"""The recipes of CONTRIBUTING.md name all files to change, and no others."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODEL_OPTION = re.compile(r"\bbatch_size\b|\bbatchSize\b")


def test_the_recipe_for_an_option_names_every_file_with_the_model_option() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    section = contributing.split("\n## Recipe: add an option to `POST /replays`\n")[1]
    files = re.findall(r"^\| `([^`]+)` \|", section.split("\n## ")[0], re.MULTILINE)
    with_option = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "app").rglob("*")
        if path.suffix in (".py", ".html") and MODEL_OPTION.search(path.read_text())
    }
    assert {each for each in files if each.startswith("app/")} == with_option
    others = [each for each in files if not each.startswith("app/")]
    assert [each for each in others if not MODEL_OPTION.search((ROOT / each).read_text())] == []
