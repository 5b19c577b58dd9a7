"""Self-signed certificates for tests."""

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class CertificateFiles(NamedTuple):
    """PEM files of one certificate."""

    key: Path
    certificate: Path
    both: Path


def self_signed(
    folder: Path, *names: str, password: str | None = None, expired: bool = False
) -> CertificateFiles:
    """Create a certificate for host names and addresses: valid for two days, or expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now - DAY if expired else now + 2 * DAY)
        .add_extension(x509.SubjectAlternativeName([general_name(each) for each in names]), False)
    )
    certificate = with_strict_extensions(
        builder, key.public_key(), key.public_key(), is_authority=True
    ).sign(key, hashes.SHA256())
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    files = CertificateFiles(folder / "key.pem", folder / "certificate.pem", folder / "both.pem")
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.both.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    return files


def with_strict_extensions(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePublicKey,
    issuer: ec.EllipticCurvePublicKey,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    """Add the extensions that RFC 5280 requires, as Python's default settings do since 3.13."""
    builder = (
        builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )
    if not is_authority:
        return builder
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return builder.add_extension(usage, critical=True)


def general_name(name: str) -> x509.GeneralName:
    """Return a host name or an address as a certificate has it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
