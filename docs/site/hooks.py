"""Hooks of the documentation site: pages from outside `docs/`, API and command reference, links.

Source: MkDocs user guide, "Hooks".
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from app.api.application import openapi_document

ROOT: Final = Path(__file__).parents[2]

COPIED_PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages of the repository's top folder, and their names on the site."""

COMMANDS: Final = {
    "rewind": "app.cli",
    "logbroker": "logbroker.cli",
    "rewind-jobs": "spark_jobs.cli",
}
"""Each command, and the module whose `main` it is."""

_RELATIVE_LINK: Final = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files in `docs/`."""
    for source, page in COPIED_PAGES.items():
        text = (ROOT / source).read_text().replace('="docs/', '="')
        files.append(File.generated(config, page, content=text))
    document = json.dumps(openapi_document())
    files.append(File.generated(config, "reference/openapi.json", content=document))
    files.append(File.generated(config, "reference/openapi.md", content=_OPENAPI_PAGE))
    for command, module in COMMANDS.items():
        page = _command_page(command, module)
        files.append(File.generated(config, f"reference/{command}.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Point links to where pages stand on the site; links to source files become plain text."""
    folder = _folder_in_repository(page.file.src_uri)

    def replaced(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        on_site = _page_on_site(target, files)
        if on_site is None:
            return text
        start = posixpath.dirname(page.file.src_uri) or "."
        return f"[{text}]({posixpath.relpath(on_site, start)}{anchor})"

    return _RELATIVE_LINK.sub(replaced, markdown)


def _folder_in_repository(page: str) -> str:
    """The folder that the relative links of a page of the site start from."""
    return "" if page in COPIED_PAGES.values() else posixpath.join("docs", posixpath.dirname(page))


def _page_on_site(target: str, files: Files) -> str | None:
    """The site's file for a path of the repository; None where the site has none."""
    if target in COPIED_PAGES:
        return COPIED_PAGES[target]
    inside = posixpath.relpath(target, "docs")
    for candidate in (inside, posixpath.join(inside, "README.md")):
        if files.get_file_from_path(candidate) is not None:
            return candidate
    return None


_OPENAPI_PAGE: Final = """# OpenAPI description

The API serves this document at `/openapi.json`.

<swagger-ui src="openapi.json"/>
"""


def _command_page(command: str, module: str) -> str:
    return f"""::: mkdocs-click
    :module: {module}
    :command: main
    :prog_name: {command}
    :depth: 0
    :style: plain
    :list_subcommands: true
"""
