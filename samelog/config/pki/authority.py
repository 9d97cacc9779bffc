"""A private certificate authority: what mutual TLS between the parts of one cluster needs.

EC P-256 keys and X.509 v3 certificates (RFC 5280). The identity is the URI subject alternative
name `samelog://<role>/<name>`; the common name is only for people. Invariant: no file is replaced
here (rotation.py does that), each is whole or absent, and a private key is never readable
by anyone but its owner.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from samelog.format.names import check_session_name

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 825
CLOCK_SKEW = timedelta(minutes=5)  # a host whose clock is a little behind accepts a new certificate

AUTHORITY = "ca"
CRL = "crl.pem"
HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*"
)


class PkiError(Exception):
    """A certificate can't be made, or what is there already can't be read."""


class CertificateRole(Enum):
    """What the holder of a certificate is."""

    NODE = "node"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"
    CLIENT = "client"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInfo:
    """What a certificate says. `identity` is None for an authority or a foreign certificate."""

    path: str
    identity: str | None
    names: tuple[str, ...]
    authority: bool
    serial: str
    not_before: datetime
    not_after: datetime
    fingerprint_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedFiles:
    """The paths of a new certificate and its private key."""

    cert: str
    key: str


def create_authority(directory: str, name: str) -> IssuedFiles:
    """Make `ca.pem` and `ca.key` in `directory`; raises PkiError when they exist."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return _write(directory, AUTHORITY, *make_authority(name))


def make_authority(name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The certificate and key of a new authority, written nowhere yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(f"{check_session_name(name)} samelog authority")
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(authority=True), critical=True)
    return builder.sign(key, hashes.SHA256()), key


def issue(
    directory: str,
    role: CertificateRole,
    name: str,
    *,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
) -> IssuedFiles:
    """Make `<role>-<name>.pem` and `.key`, signed by the authority in `directory`.

    `hosts` are DNS names and IP addresses for clients that verify host names: with any, as for a
    node without, the certificate also serves. Raises PkiError and, for a name outside the grammar,
    InvalidName.
    """
    authority, authority_key = read_authority(directory)
    identity = f"samelog://{role.value}/{check_session_name(name)}"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(f"{role.value} {name}")
    builder = _builder(subject, authority.subject, key.public_key(), _days(days, authority))
    builder = builder.add_extension(_alternative_names(identity, hosts), critical=False)
    builder = builder.add_extension(_extended_usage(role, hosts), critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_key_usage(authority=False), critical=True)
    builder = builder.add_extension(_issuer_key(authority), critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    return _write(directory, f"{role.value}-{name}", certificate, key)


def files_of(directory: str, role: CertificateRole, name: str) -> IssuedFiles:
    """Where the certificate of an identity and its key are, or would be. Raises InvalidName."""
    path = os.path.join(directory, f"{role.value}-{check_session_name(name)}")
    return IssuedFiles(cert=f"{path}.pem", key=f"{path}.key")


def list_certificates(directory: str) -> list[CertificateInfo]:
    """Every certificate in `directory`, by file name; raises PkiError."""
    try:
        names = sorted(
            name for name in os.listdir(directory) if name.endswith(".pem") and name != CRL
        )
    except OSError as error:
        raise PkiError(f"{directory}: can't be listed: {error.strerror}") from error
    return [describe(os.path.join(directory, name)) for name in names]


def describe(path: str) -> CertificateInfo:
    """What the certificate in a PEM file says; raises PkiError."""
    certificate = _read_certificate(path)
    uris, hosts = _names_of(certificate)
    ours = [uri for uri in uris if uri.startswith("samelog://")]
    return CertificateInfo(
        path=path,
        identity=ours[0] if ours else None,
        names=tuple(hosts),
        authority=_is_authority(certificate),
        serial=f"{certificate.serial_number:x}",
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint_sha256=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _days(days: int, authority: x509.Certificate) -> int:
    left = (authority.not_valid_after_utc - datetime.now(UTC)).days
    if not 1 <= days <= left:
        raise PkiError(f"{days} days is not between 1 and the {left} that the authority has left")
    return days


def _common_name(text: str) -> x509.Name:
    # RFC 5280 allows 64 characters; the identity is the alternative name, so cutting is harmless.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative_names(identity: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity)]
    return x509.SubjectAlternativeName(names + [_host(host) for host in hosts])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if HOST_NAME.fullmatch(host) is None:
        raise PkiError(f"{host!r} is neither an IP address nor an ASCII host name")
    return x509.DNSName(host)


def _extended_usage(role: CertificateRole, hosts: Sequence[str]) -> x509.ExtendedKeyUsage:
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role is CertificateRole.NODE or hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return x509.ExtendedKeyUsage(usages)


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issuer_key(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _names_of(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """The URIs, and the host names and addresses, of a certificate."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return [], []
    names = extension.value
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uris, names.get_values_for_type(x509.DNSName) + addresses


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise PkiError(f"{path}: can't be read: {error.strerror}") from error


def _read_certificate(path: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise PkiError(f"{path}: not a certificate in PEM form") from error


def read_authority(directory: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority that signs, and its key. Raises PkiError."""
    path = os.path.join(directory, AUTHORITY)
    if not os.path.exists(f"{path}.pem"):
        raise PkiError(f"{directory}: no authority here: run `samelog pki init` first")
    certificate = _read_certificate(f"{path}.pem")
    try:
        key = serialization.load_pem_private_key(_read(f"{path}.key"), password=None)
    except (ValueError, TypeError) as error:
        raise PkiError(f"{path}.key: not an unencrypted private key in PEM form") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{path}.key: not an elliptic-curve key")
    if key.public_key() != certificate.public_key():
        raise PkiError(f"{path}.key: is not the key of {path}.pem")
    return certificate, key


def _write(
    directory: str, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> IssuedFiles:
    path = os.path.join(directory, name)
    files = IssuedFiles(cert=f"{path}.pem", key=f"{path}.key")
    for existing in (files.cert, files.key):
        if os.path.lexists(existing):
            raise PkiError(f"{existing}: exists already, and is never overwritten")
    _write_new(files.key, private_bytes(key), 0o600)
    try:
        _write_new(files.cert, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except PkiError:
        os.unlink(files.key)  # a key without its certificate would only stand in the way
        raise
    return files


def private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_new(path: str, data: bytes, mode: int) -> None:
    """Write a whole new file: `link` refuses to replace one, even one made a moment ago."""
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path)) as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)
    except FileExistsError as error:
        raise PkiError(f"{path}: exists already, and is never overwritten") from error
    except OSError as error:
        raise PkiError(f"{path}: can't be written: {error.strerror}") from error
