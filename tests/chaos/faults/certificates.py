"""Certificates that are replaced while they are in use, also by ones that expire within seconds.

Invariant: a file is replaced as a whole, key before certificate, as secrets are mounted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from samelog.config.pki.authority import CertificateRole, issue

HOSTS = ("127.0.0.1", "localhost")


def rotate(pki: Path, role: CertificateRole, name: str, *, lifetime_s: float | None = None) -> None:
    """A new key and certificate in the place of the old ones."""
    with tempfile.TemporaryDirectory() as aside:
        for file in ("ca.pem", "ca.key"):
            shutil.copy(pki / file, aside)
        hosts = HOSTS if role is CertificateRole.NODE else ()
        made = issue(aside, role, name, hosts=hosts)
        if lifetime_s is not None:
            _shorten(Path(made.cert), Path(aside, "ca.key"), lifetime_s)
        for path in (made.key, made.cert):
            new = pki / (Path(path).name + ".new")
            shutil.copy(path, new)
            os.chmod(new, 0o600)
            os.replace(new, pki / Path(path).name)


def _shorten(certificate: Path, authority_key: Path, lifetime_s: float) -> None:
    """Sign the same certificate again, with an end that is near."""
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = serialization.load_pem_private_key(authority_key.read_bytes(), password=None)
    public = old.public_key()
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(
        public, ec.EllipticCurvePublicKey
    ):
        raise TypeError("samelog's authority uses elliptic curves")
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(datetime.now(UTC) + timedelta(seconds=lifetime_s))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    signed = builder.sign(key, hashes.SHA256())
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
