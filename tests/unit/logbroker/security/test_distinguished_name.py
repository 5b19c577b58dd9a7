"""Subjects of certificates in the form in which Apache Kafka names principals."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from logbroker.security.distinguished_name import read_subject
from tests.support.http.certificate_authority import CertificateAuthority, subject_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


def der_of(authority: CertificateAuthority, subject: x509.Name) -> bytes:
    pem = authority.issue("subject", subject=subject).certificate.read_bytes()
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (subject_of(CN="client"), "CN=client"),
        (
            subject_of(C="SE", O="Example AB", OU="Payments", CN="client-1"),
            "CN=client-1,OU=Payments,O=Example AB,C=SE",
        ),
        (subject_of(O="Räksmörgås", UID="7"), "UID=7,O=Räksmörgås"),
        (subject_of(O='a,b+c"d\\e<f>g;h'), r"O=a\,b\+c\"d\\e\<f\>g\;h"),
        (subject_of(CN=" two  "), r"CN=\ two\ \ "),
        (subject_of(EMAIL="a@b.c"), "1.2.840.113549.1.9.1=#1605614062 2e63".replace(" ", "")),
        (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ö", _ASN1Type.BMPString)]), "CN=ö"),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                            x509.NameAttribute(NameOID.USER_ID, "b"),
                        ]
                    )
                ]
            ),
            "CN=a+UID=b",
        ),
        (x509.Name([]), ""),
    ],
)
def test_the_most_specific_part_comes_first(
    authority: CertificateAuthority, subject: x509.Name, text: str
) -> None:
    assert read_subject(der_of(authority, subject)) == text


def test_a_truncated_certificate_is_rejected(authority: CertificateAuthority) -> None:
    certificate = der_of(authority, subject_of(CN="client"))
    for end in range(0, len(certificate), 7):
        with pytest.raises(ValueError, match="truncated"):
            read_subject(certificate[:end])


def test_the_certificate_of_the_authority_is_read(authority: CertificateAuthority) -> None:
    pem = Path(authority.certificate).read_bytes()
    certificate = x509.load_pem_x509_certificate(pem)
    assert read_subject(certificate.public_bytes(Encoding.DER)) == "CN=authority"
