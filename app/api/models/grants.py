"""Documents of the routes of grants."""

from typing import Self

from app.api.models.documents import Document
from app.domain.grants import Grant
from app.domain.rules import document_of
from app.http.event_patterns import ConditionDocument
from app.http.event_selections import SELECTION_EXAMPLE
from app.http.request_bodies import example


class GrantDocument(Document):
    """A grant of an account."""

    model_config = example(SELECTION_EXAMPLE | {"accountId": "acc_9f1c27", "name": "user-42"})

    account_id: str
    name: str
    event_types: list[str]
    where: dict[str, ConditionDocument]

    @classmethod
    def of(cls, grant: Grant) -> Self:
        """The document of a grant."""
        return cls(
            account_id=grant.account_id,
            name=grant.name,
            event_types=list(grant.event_types),
            where=document_of(grant.where),
        )
