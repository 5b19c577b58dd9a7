"""Only commands that do not use webhooks open the store without the keys of their secrets."""

import ast
from pathlib import Path

APP = Path(__file__).parents[4] / "app"

WITHOUT_KEYS = {
    "cli/database.py",  # accounts, grants and keys
    "cli/operator_key.py",
    "cli/secrets.py",  # counts by key
    "store/stored_secrets.py",  # counts by key
}


def opens_without_keys(path: Path) -> bool:
    if "Store.open" not in (source := path.read_text()):
        return False
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(ast.unparse(call.func) == "Store.open" and len(call.args) == 1 for call in calls)


def test_processes_open_the_store_with_the_keys_of_webhook_secrets() -> None:
    paths = [path for path in APP.rglob("*.py") if opens_without_keys(path)]
    assert {path.relative_to(APP).as_posix() for path in paths} == WITHOUT_KEYS
