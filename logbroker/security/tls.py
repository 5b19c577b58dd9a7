"""TLS of the broker's listeners: certificates, and whom they admit."""

import logging
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from logbroker.config import ClientAuth
from logbroker.errors import ConfigurationError
from logbroker.file_version import FileVersion, file_version
from logbroker.listeners import SecurityProtocol

log = logging.getLogger("logbroker.tls")

_VERIFY_MODES: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class TlsFiles(NamedTuple):
    """PEM files: the certificate chain, its key (the same file by default) and trusted CAs."""

    certificate: Path
    key: Path
    ca: Path | None


class TlsContexts:
    """The contexts of the listeners with TLS; `reload` replaces them for new connections.

    A client certificate is requested on SSL listeners only: on SASL_SSL listeners clients
    authenticate with SASL (as in Kafka since KIP-684).
    """

    def __init__(self, files: TlsFiles, client_auth: ClientAuth) -> None:
        """Load the files.

        Raises:
            ConfigurationError: a file cannot be read, or key and certificate do not match.
        """
        self._files = files
        self._client_auth = client_auth
        self._failed: object = None
        self._loaded = self._versions()
        self._contexts = self._load()

    def context(self, protocol: SecurityProtocol) -> ssl.SSLContext:
        """Return the context for new connections of a listener."""
        return self._contexts[protocol]

    def reload_if_changed(self) -> bool:
        """Load the files again if one of them was replaced; returns whether they were loaded."""
        versions = self._versions()
        return versions not in (self._loaded, self._failed) and self.reload()

    def reload(self) -> bool:
        """Load the files again; after an error the old certificate stays in use."""
        versions = self._versions()
        try:
            self._contexts = self._load()
        except ConfigurationError as error:
            # The other file of a pair may follow; until a file changes, it is logged once.
            self._failed = versions
            log.error("certificate not reloaded, the old one stays in use: %s", error)
            return False
        self._loaded, self._failed = versions, None
        log.info("reloaded certificate file=%s", self._files.certificate)
        return True

    def _versions(self) -> list[FileVersion | None]:
        return [file_version(path) for path in self._files if path is not None]

    def _load(self) -> dict[SecurityProtocol, ssl.SSLContext]:
        return {
            SecurityProtocol.SSL: _context(self._files, self._client_auth),
            SecurityProtocol.SASL_SSL: _context(self._files, "none"),
        }


def _context(files: TlsFiles, client_auth: ClientAuth) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could make the broker repeat the costly part of the handshake for ever.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"ssl_certfile {files.certificate} or ssl_keyfile {files.key} cannot be used: {error}"
        ) from error
    context.verify_mode = _VERIFY_MODES[client_auth]
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except OSError as error:
            raise ConfigurationError(f"ssl_ca_file {files.ca} cannot be used: {error}") from error
    return context


def _refuse_password() -> str:
    """Raise; without this, OpenSSL would ask on the terminal for the password of a key."""
    raise ValueError("the key is encrypted; store it unencrypted, readable by the broker only")
