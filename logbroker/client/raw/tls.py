"""TLS settings from properties, with certificates and keys in PEM, and their OpenSSL context."""

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from logbroker.client.raw.parsing.property_reader import PropertyReader
from logbroker.errors import ConfigurationError

UNDERSTOOD: Final = frozenset(
    (
        *("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.type"),
        *("ssl.truststore.certificates", "ssl.certificate.location", "ssl.certificate.pem"),
        *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.keystore.location"),
        *("ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
        *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
        *("ssl.enabled.protocols", "ssl.protocol"),
        # Only for store types that are rejected.
        *("ssl.truststore.password", "ssl.keystore.password"),
    )
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM_MARK: Final = b"-----BEGIN "
_SYSTEM: Final = "probe"
"""librdkafka's value for the certificates that the machine trusts."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Trusted certificates and the client's identity, as files or PEM texts.

    Without trusted certificates, those of the machine apply.
    """

    ca_location: str | None
    ca_pem: str | None
    certificate_location: str | None
    key_location: str | None
    key_and_certificate_pem: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    verifies: bool
    checks_host: bool
    versions: tuple[ssl.TLSVersion, ...]


def read_tls(reader: PropertyReader) -> TlsSettings:
    """Parse the settings of a TLS connection; problems go to `reader`."""
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        reader.choice(("PEM",), name)
    verifies = reader.choice(("true", "false"), "enable.ssl.certificate.verification")
    algorithm = reader.choice(("https", "none", ""), "ssl.endpoint.identification.algorithm")
    reader.choice(("TLS", *_VERSIONS), "ssl.protocol")
    ca_location = reader.text("ssl.ca.location", "ssl.truststore.location")
    return TlsSettings(
        ca_location=None if ca_location == _SYSTEM else ca_location,
        ca_pem=reader.text("ssl.ca.pem", "ssl.truststore.certificates"),
        certificate_location=reader.text("ssl.certificate.location", "ssl.keystore.location"),
        key_location=reader.text("ssl.key.location"),
        key_and_certificate_pem=_key_and_certificate(reader),
        key_password=reader.text("ssl.key.password"),
        verifies=verifies != "false",
        checks_host=algorithm in (None, "https"),
        versions=_versions(reader),
    )


def _key_and_certificate(reader: PropertyReader) -> str | None:
    key = reader.text("ssl.key.pem", "ssl.keystore.key")
    certificate = reader.text("ssl.certificate.pem", "ssl.keystore.certificate.chain")
    if (key is None) != (certificate is None):
        reader.problems.append("ssl.key.pem and ssl.certificate.pem must be set together")
    return f"{key}\n{certificate}\n" if key and certificate else None


def _versions(reader: PropertyReader) -> tuple[ssl.TLSVersion, ...]:
    text = reader.text("ssl.enabled.protocols") or ",".join(_VERSIONS)
    names = [name.strip() for name in text.split(",")]
    # Older versions are unsafe, and are dropped from the list.
    allowed = tuple(version for name, version in _VERSIONS.items() if name in names)
    if not allowed:
        reader.problems.append(f"ssl.enabled.protocols is {text!r}; allowed: {list(_VERSIONS)}")
    return allowed or tuple(_VERSIONS.values())


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context for connections; reads the files.

    Raises:
        ConfigurationError: a file cannot be read, or is not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = min(settings.versions)
    context.maximum_version = max(settings.versions)
    context.check_hostname = settings.verifies and settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED if settings.verifies else ssl.CERT_NONE
    try:
        _load_trust(context, settings)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the trusted certificates: {error}") from error
    try:
        _load_identity(context, settings)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read key and certificate: {error}") from error
    return context


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.ca_pem is not None:
        context.load_verify_locations(cadata=settings.ca_pem)
    if settings.ca_location is None:
        if settings.ca_pem is None:
            context.load_default_certs()
    elif Path(settings.ca_location).is_dir():
        context.load_verify_locations(capath=settings.ca_location)
    else:
        _require_pem(settings.ca_location)
        context.load_verify_locations(cafile=settings.ca_location)


def _load_identity(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # Without a password OpenSSL would prompt on the terminal.
    password = settings.key_password or ""
    if settings.key_and_certificate_pem is not None:
        # Python loads an identity only from a file; only its owner can read this one.
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(settings.key_and_certificate_pem)
            file.flush()
            context.load_cert_chain(file.name, password=password)
    elif settings.certificate_location is not None:
        _require_pem(settings.certificate_location)
        context.load_cert_chain(
            settings.certificate_location, settings.key_location, password=password
        )


def _require_pem(location: str) -> None:
    if _PEM_MARK not in Path(location).read_bytes():
        raise ValueError(f"{location} is not PEM; JKS and PKCS#12 are not supported")
