"""Connections to MySQL and MariaDB."""

import ssl
from functools import cache
from typing import Any

from pymysql.connections import Connection


class MySqlConnection(Connection):
    """PyMySQL's connection, which loads certificate authorities only to verify a certificate.

    If the URL has no option for TLS, PyMySQL encrypts where the server can, and verifies nothing.
    For that it would load the authorities of the machine for each connection, which takes 40 ms.
    """

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if sslp:
            context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return context
        return _unverified_context()


@cache
def _unverified_context() -> ssl.SSLContext:
    """A context that all connections of the process share."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect_mysql(
    _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
) -> MySqlConnection:
    """The connection that SQLAlchemy asks for by its event `do_connect`."""
    return MySqlConnection(*arguments, **options)
