"""Principals: the identities of clients, as Kafka names them."""

from typing import Final, NamedTuple, Self

USER_KIND: Final = "User"


class Principal(NamedTuple):
    """An identity such as `User:alice`; `str` returns this form."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the principal that `KIND:NAME` names; the name may contain colons.

        Raises:
            ValueError: the kind or the name is empty.

        Source: Apache Kafka, `SecurityUtils.parseKafkaPrincipal`.
        """
        kind, _, name = text.partition(":")
        if not kind or not name:
            raise ValueError(f"invalid principal {text!r}; expected KIND:NAME, such as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER_KIND, "ANONYMOUS")
"""The principal of a client that does not authenticate."""
