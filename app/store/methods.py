"""Turns functions that get a connection into methods of a store."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from app.store.engine import Database

P = ParamSpec("P")
T = TypeVar("T")


class HasDatabase(Protocol):
    """A store; its database runs the functions."""

    database: Database


def reads(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], T]:
    """`function` as a method of a store that runs it with `Database.read`."""

    @wraps(function)
    def method(store: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.database.read(function, *args, **kwargs)

    return method


def writes(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], T]:
    """`function` as a method of a store that runs it with `Database.write`."""

    @wraps(function)
    def method(store: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.database.write(function, *args, **kwargs)

    return method


def autocommits(
    function: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[HasDatabase, P], T]:
    """`function` as a method of a store that runs it with `Database.autocommit`."""

    @wraps(function)
    def method(store: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store.database.autocommit(function, *args, **kwargs)

    return method
