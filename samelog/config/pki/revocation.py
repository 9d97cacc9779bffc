"""Revocation lists (RFC 5280) before OpenSSL gets them.

OpenSSL refuses everybody when a list is missing, out of date or of another authority. Invariant: a
list that would do so is refused, so that the one before it stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

_BEGIN = b"-----BEGIN X509 CRL-----"


def problem_of_lists(authorities: Iterable[x509.Certificate], pem: bytes) -> str:
    """Why these lists, PEM, are not one of every authority that counts now; empty if they are."""
    try:
        lists = [x509.load_pem_x509_crl(_BEGIN + part) for part in pem.split(_BEGIN)[1:]]
    except ValueError as error:
        return f"no revocation lists in PEM form: {error}"
    now = datetime.now(UTC)
    for authority in authorities:
        if not any(_is_of(each, authority, now) for each in lists):
            return f"has no list of {authority.subject.rfc4514_string()} that counts now"
    return ""


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
    except (InvalidSignature, TypeError, ValueError, UnsupportedAlgorithm):
        return False
