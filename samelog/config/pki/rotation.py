"""New certificates for old, a new authority for an old one, and certificates that count no more.

While an authority changes, `ca.pem` holds both, the new one first: whoever has that file accepts
certificates of either. Invariant: each file is replaced whole, and what was in it before stays in
`replaced/`; who has been revoked stays on the list of every authority that could have signed it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from samelog.config.pki.authority import (
    AUTHORITY,
    CERTIFICATE_DAYS,
    CLOCK_SKEW,
    CRL,
    CertificateRole,
    IssuedFiles,
    PkiError,
    describe,
    issue,
    make_authority,
    private_bytes,
    read_authority,
)
from samelog.config.pki.secret_files import replace_file

REPLACED = "replaced"
CRL_DAYS = 3650
PEM = serialization.Encoding.PEM
BEGIN_CRL = b"-----BEGIN X509 CRL-----"


def rotate(
    directory: str, role: CertificateRole, name: str, *, days: int = CERTIFICATE_DAYS
) -> IssuedFiles:
    """A new key and certificate of the same identity and hosts, in the place of the old. Raises
    PkiError.
    """
    stem = f"{role.value}-{name}"
    old = describe(os.path.join(directory, f"{stem}.pem"))
    with tempfile.TemporaryDirectory(dir=directory) as beside:
        for each in (f"{AUTHORITY}.pem", f"{AUTHORITY}.key"):
            os.symlink(os.path.abspath(os.path.join(directory, each)), os.path.join(beside, each))
        made = issue(beside, role, name, hosts=old.names, days=days)
        _keep(directory, (f"{stem}.pem", f"{stem}.key"))
        files = IssuedFiles(
            cert=os.path.join(directory, f"{stem}.pem"), key=os.path.join(directory, f"{stem}.key")
        )
        os.replace(made.key, files.key)
        os.replace(made.cert, files.cert)
    return files


def rotate_authority(directory: str, name: str) -> IssuedFiles:
    """Begin to change the authority: a new key signs from now on, and `ca.pem` holds both. Raises
    PkiError when the last change is not finished.
    """
    old, old_key = read_authority(directory)
    path = os.path.join(directory, AUTHORITY)
    if len(_authorities(directory)) > 1:
        raise PkiError(f"{path}.pem holds two authorities: finish the last change first (--finish)")
    made, key = make_authority(name)
    revoked = _revoked(directory)
    _keep(directory, (f"{AUTHORITY}.pem", f"{AUTHORITY}.key"))
    if os.path.exists(os.path.join(directory, CRL)):
        _write_lists(directory, ((made, key), (old, old_key)), revoked)
    _replace(f"{path}.key", private_bytes(key), 0o600)
    _replace(f"{path}.pem", made.public_bytes(PEM) + old.public_bytes(PEM), 0o644)
    return IssuedFiles(cert=f"{path}.pem", key=f"{path}.key")


def finish_authority(directory: str) -> list[str]:
    """End it: `ca.pem` holds the new one alone. Raises PkiError while a certificate in the
    directory is of the old one, which would be worth nothing then.
    """
    new, _ = read_authority(directory)
    left = []
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".pem") or name in (f"{AUTHORITY}.pem", CRL):
            continue
        path = os.path.join(directory, name)
        if not _is_signed_by(path, new):
            left.append(path)
    if left:
        raise PkiError(f"rotate these first, the old authority signed them: {', '.join(left)}")
    path = os.path.join(directory, f"{AUTHORITY}.pem")
    gone = [each.serial_number for each in _authorities(directory) if each != new]
    _keep(directory, (f"{AUTHORITY}.pem",))
    _replace(path, new.public_bytes(PEM), 0o644)
    return [f"{serial:x}" for serial in gone]


def revoke(directory: str, serial: str) -> str:
    """Put a serial number (hexadecimal) on the list of the authority: the list's path. Raises
    PkiError.
    """
    try:
        number = int(serial, 16)
    except ValueError as error:
        text = f"{serial!r} is neither a certificate's file nor a hexadecimal serial number"
        raise PkiError(text) from error
    authority, key = read_authority(directory)
    revoked = _revoked(directory)
    revoked.setdefault(number, datetime.now(UTC))
    others = [each for each in _authorities(directory) if each != authority]
    _write_lists(directory, ((authority, key), *_signers(directory, others)), revoked)
    return os.path.join(directory, CRL)


def revoke_file(directory: str, path: str) -> str:
    """Put a certificate of the authority's on its list: the list's path. Raises PkiError."""
    found = describe(path)
    if found.authority:
        text = "is an authority, which is not revoked but replaced: samelog pki rotate ca"
        raise PkiError(f"{path} {text}")
    if not any(_is_signed_by(path, authority) for authority in _authorities(directory)):
        text = f"no authority in {os.path.join(directory, AUTHORITY)}.pem has signed it"
        raise PkiError(f"{path}: {text}, so this revocation list would not stop it")
    return revoke(directory, found.serial)


def refresh_lists(directory: str) -> None:
    """Rewrite the lists; an authority that revoked nothing has an empty one. Raises PkiError."""
    authority, key = read_authority(directory)
    others = [each for each in _authorities(directory) if each != authority]
    signers = ((authority, key), *_signers(directory, others))
    _write_lists(directory, signers, _revoked(directory))


def revoked_serials(directory: str) -> frozenset[str]:
    """Who is on the list, by serial number (hexadecimal)."""
    return frozenset(f"{number:x}" for number in _revoked(directory))


def _authorities(directory: str) -> list[x509.Certificate]:
    with open(os.path.join(directory, f"{AUTHORITY}.pem"), "rb") as file:
        return x509.load_pem_x509_certificates(file.read())


def _signers(
    directory: str, authorities: Iterable[x509.Certificate]
) -> Iterable[tuple[x509.Certificate, ec.EllipticCurvePrivateKey]]:
    """Older authorities, with their keys, which were kept."""
    kept = os.path.join(directory, REPLACED)
    names = os.listdir(kept) if os.path.isdir(kept) else []
    for authority in authorities:
        for name in names:
            if name.startswith(f"{AUTHORITY}.key"):
                with open(os.path.join(kept, name), "rb") as file:
                    key = serialization.load_pem_private_key(file.read(), password=None)
                if isinstance(key, ec.EllipticCurvePrivateKey) and (
                    key.public_key() == authority.public_key()
                ):
                    yield authority, key


def _revoked(directory: str) -> dict[int, datetime]:
    """Since when each serial number is on a list."""
    try:
        with open(os.path.join(directory, CRL), "rb") as file:
            parts = file.read().split(BEGIN_CRL)[1:]
    except FileNotFoundError:
        return {}
    lists = [x509.load_pem_x509_crl(BEGIN_CRL + part) for part in parts]
    return {each.serial_number: each.revocation_date_utc for found in lists for each in found}


def _write_lists(
    directory: str,
    authorities: Iterable[tuple[x509.Certificate, ec.EllipticCurvePrivateKey]],
    revoked: dict[int, datetime],
) -> None:
    """The same list of every authority: serial numbers are random, and meant once."""
    data = b"".join(_list(*each, revoked) for each in authorities)
    _replace(os.path.join(directory, CRL), data, 0o644)


def _list(
    authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, revoked: dict[int, datetime]
) -> bytes:
    now = datetime.now(UTC)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - CLOCK_SKEW)
        .next_update(now + timedelta(days=CRL_DAYS))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
    )
    for number, since in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(since)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(PEM)


def _is_signed_by(path: str, authority: x509.Certificate) -> bool:
    with open(path, "rb") as file:
        certificate = x509.load_pem_x509_certificate(file.read())
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _keep(directory: str, names: Iterable[str]) -> None:
    """Copy files to `replaced/`, under a name with the time."""
    kept = os.path.join(directory, REPLACED)
    os.makedirs(kept, mode=0o700, exist_ok=True)
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    for name in names:
        try:
            os.link(os.path.join(directory, name), os.path.join(kept, f"{name}.{when}"))
        except FileNotFoundError:
            continue


def _replace(path: str, data: bytes, mode: int) -> None:
    try:
        replace_file(path, data, mode)
    except OSError as error:
        raise PkiError(f"{path}: can't be written: {error.strerror}") from error
