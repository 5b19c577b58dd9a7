"""How lists are asked for a page at a time."""

from typing import Annotated

from fastapi import Query

Cursor = Annotated[
    str | None, Query(max_length=500, description="The `nextCursor` of the page before.")
]

Limit = Annotated[int, Query(ge=1, le=200, description="Items of a page.")]
