"""TLS as properties tell of it, with certificates and keys in PEM, and OpenSSL's word for it."""

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
        # Of stores of other types alone, and those are refused.
        *("ssl.truststore.password", "ssl.keystore.password"),
    )
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM_MARK: Final = b"-----BEGIN "
_SYSTEM: Final = "probe"
"""librdkafka's word for the certificates that the machine trusts."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Whom to trust, and what to show; files, or PEM texts. Without any, the machine's trust."""

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
    """The settings for a connection with TLS; what cannot be is told to `reader`."""
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
        reader.problems.append(
            "a key in PEM needs its certificate beside it, and a certificate its key"
        )
    return f"{key}\n{certificate}\n" if key and certificate else None


def _versions(reader: PropertyReader) -> tuple[ssl.TLSVersion, ...]:
    text = reader.text("ssl.enabled.protocols") or ",".join(_VERSIONS)
    names = [name.strip() for name in text.split(",")]
    # Older ones are not safe, and who allows them beside these gets on without.
    allowed = tuple(version for name, version in _VERSIONS.items() if name in names)
    if not allowed:
        reader.problems.append(f"ssl.enabled.protocols is {text!r}; allowed are {list(_VERSIONS)}")
    return allowed or tuple(_VERSIONS.values())


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """What connections are wrapped in; the files are read now.

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
        raise ConfigurationError(f"the trusted certificates cannot be read: {error}") from error
    try:
        _load_identity(context, settings)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"key and certificate cannot be read: {error}") from error
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
    # Without a password at hand OpenSSL would ask the terminal for one.
    password = settings.key_password or ""
    if settings.key_and_certificate_pem is not None:
        # Python takes an identity from a file alone; only its owner may read this one.
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
        raise ValueError(f"{location} is not PEM; stores of Java (JKS) and PKCS#12 are not read")
