"""A small certificate authority for tests: files of any party, right or wrong in one way."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from samelog.config.tables.shared import TlsFiles

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
BOTH_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """From when to when a certificate is valid."""

    start: dt.datetime = NOW - dt.timedelta(hours=1)
    end: dt.datetime = NOW + dt.timedelta(days=1)


EXPIRED = Lifetime(start=NOW - dt.timedelta(days=2), end=NOW - dt.timedelta(days=1))
FUTURE = Lifetime(start=NOW + dt.timedelta(days=1), end=NOW + dt.timedelta(days=2))


class Authority:
    """A self-signed authority whose files live in one directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _subject(name)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._subject, self._key, Lifetime())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_path = directory / f"{name}.pem"
        self.ca_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *sans: str,
        lifetime: Lifetime | None = None,
        usages: tuple[x509.ObjectIdentifier, ...] = BOTH_USAGES,
    ) -> TlsFiles:
        """Files of a party with these SANs, `dns:<name>` or URI; replaces those of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_subject(name), key, lifetime or Lifetime())
        if sans:
            general = [_general_name(san) for san in sans]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return self._write(name.replace("/", "_"), certificate, key)

    def node(self, name: str) -> TlsFiles:
        """Files of the node `name`."""
        return self.issue(f"node-{name}", f"samelog://node/{name}")

    def publisher(self, name: str) -> TlsFiles:
        """Files of the publisher `name`."""
        return self.issue(f"publisher-{name}", f"samelog://publisher/{name}")

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: Lifetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(lifetime.start)
            .not_valid_after(lifetime.end)
        )

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> TlsFiles:
        cert_path, key_path = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.touch(mode=0o600)
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        os.chmod(key_path, 0o600)
        return TlsFiles(ca=str(self.ca_path), cert=str(cert_path), key=str(key_path))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(san: str) -> x509.GeneralName:
    if san.startswith("dns:"):
        return x509.DNSName(san.removeprefix("dns:"))
    return x509.UniformResourceIdentifier(san)
