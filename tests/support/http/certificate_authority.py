"""A certificate authority for tests, which signs certificates of servers and clients."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.http.certificates import (
    DAY,
    CertificateFiles,
    general_name,
    with_strict_extensions,
)


class CertificateAuthority:
    """A self-signed authority; its certificate is the file `certificate`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = subject_of(CN=name)
        signed = self._builder(self._subject, self._key.public_key(), is_authority=True)
        self._signed = signed.sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(self._signed.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *addresses: str, subject: x509.Name | None = None
    ) -> CertificateFiles:
        """Create files for a key and its certificate, for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            subject_of(CN=name) if subject is None else subject, key.public_key()
        )
        if addresses:
            names = x509.SubjectAlternativeName([general_name(each) for each in addresses])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = CertificateFiles(
            *(self.folder / f"{name}-{part}.pem" for part in ("key", "certificate", "both"))
        )
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.both.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
        return files

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool = False
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
        return with_strict_extensions(
            builder, key, self._key.public_key(), is_authority=is_authority
        )


def subject_of(**parts: str) -> x509.Name:
    """Return a name of these parts, the most general first: `subject_of(O="Example", CN="x")`."""
    kinds = {
        "C": NameOID.COUNTRY_NAME,
        "O": NameOID.ORGANIZATION_NAME,
        "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
        "CN": NameOID.COMMON_NAME,
        "EMAIL": NameOID.EMAIL_ADDRESS,
        "UID": NameOID.USER_ID,
    }
    return x509.Name([x509.NameAttribute(kinds[kind], text) for kind, text in parts.items()])
