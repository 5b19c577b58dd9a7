import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.processes
def test_other_users_cannot_read_the_database_of_a_migration(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/folder/rewind.db"
    migrate = [sys.executable, "-m", "app", "migrate", "--database", database]
    subprocess.run(migrate, check=True, umask=0o022, env=dict(os.environ), capture_output=True)
    created = [tmp_path / "folder", *(tmp_path / "folder").iterdir()]
    assert len(created) > 1
    assert [path for path in created if path.stat().st_mode & 0o077] == []
