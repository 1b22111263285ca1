"""Certificate authorities for tests, and the certificates that they issue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


class Files(NamedTuple):
    """The PEM files of a certificate and its private key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority for servers.

    Attributes:
        file: the PEM file of the authority's certificate.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._certificate(self._name, self._key.public_key(), datetime.now(UTC) + _DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, lasts: timedelta = _DAY) -> Files:
        """Issues a certificate for DNS names or IP addresses.

        Args:
            lasts: the time from now until it expires; negative for an expired one.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a worker")])
        alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
        made = self._certificate(subject, key.public_key(), datetime.now(UTC) + lasts)
        pem = made.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())
        files = Files(self._folder / f"{pem.serial_number}.pem", self._folder / f"{pem.serial_number}.key")
        files.cert.write_bytes(pem.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _certificate(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(datetime.now(UTC), until) - _DAY)
            .not_valid_after(until)
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
