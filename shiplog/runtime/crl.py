"""Revocation lists (RFC 5280) before OpenSSL gets them.

OpenSSL refuses everybody when a list is missing, out of date or of another authority. Invariant: a
list that would do so is refused as a file, so that the one before it stays.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from shiplog.runtime.errors import TlsFault

BEGIN = b"-----BEGIN X509 CRL-----"
REMEDY = "it must hold a list of each authority, as PEM: `shiplog pki revoke` makes it"


def check_revocations(authorities: str, path: str) -> None:
    """Whether the file `path` has a list of every authority in the file `authorities` that counts
    now. Raises TlsFault.
    """
    try:
        with open(authorities, "rb") as file:
            known = x509.load_pem_x509_certificates(file.read())
        with open(path, "rb") as file:
            parts = file.read().split(BEGIN)[1:]
        lists = [x509.load_pem_x509_crl(BEGIN + part) for part in parts]
    except (OSError, ValueError) as error:
        raise TlsFault(
            f"revocation lists {path!r} cannot be used: {error}", remedy=REMEDY
        ) from error
    now = datetime.now(UTC)
    for authority in known:
        if not any(_is_of(each, authority, now) for each in lists):
            name = authority.subject.rfc4514_string()
            raise TlsFault(f"{path!r} has no list of {name} that counts now", remedy=REMEDY)


def _is_of(
    each: x509.CertificateRevocationList, authority: x509.Certificate, now: datetime
) -> bool:
    """Whether the authority signed this list, and it is neither of the future nor out of date."""
    until = each.next_update_utc
    if each.issuer != authority.subject or each.last_update_utc > now:
        return False
    if until is not None and until < now:
        return False
    try:
        return each.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (InvalidSignature, TypeError):
        return False
