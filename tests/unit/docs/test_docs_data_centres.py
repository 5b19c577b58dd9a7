"""What the page of data centres says in numbers, in settings and in metrics is so."""

import re

from app.api.models.replays import ReplayDocument
from app.config import Settings
from app.domain.digest_set import ENTRIES_MAX
from app.live.mirrored import WAITING_MAX
from app.setting_checks import ORIGIN_CHARS_MAX
from app.variables import variable
from tests.unit.docs.doc_pages import page, section

PAGE = page("data-centres.md")
SERVICE = page("service.md")


def test_the_bounds_are_documented() -> None:
    documented = section(PAGE, "## Who does what").replace("\n ", "")
    assert f"up to\n  {ENTRIES_MAX:,} for one replay" in section(PAGE, "## Who does what")
    assert f"at most {WAITING_MAX:,} records" in documented
    name = f"1 to {ORIGIN_CHARS_MAX} letters, digits, dots, hyphens and underscores"
    assert name in SERVICE
    assert name in section(PAGE, "## Setting it up").replace("\n  ", "")


def test_the_settings_that_are_named_are_settings() -> None:
    known = {variable(name) for name in Settings.model_fields}
    assert set(re.findall(r"REWIND_[A-Z_]+", PAGE)) <= known
    assert "origin" in ReplayDocument.model_fields
