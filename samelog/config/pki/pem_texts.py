"""Certificates, keys and revocation lists (RFC 5280) as PEM texts, checked before OpenSSL has them.

OpenSSL wants files, so texts within a client's configuration are put into some (client_state.py);
everybody else sees only those. It refuses everybody when a revocation list is missing, out of date
or of another authority. Invariant: texts that are no PEM, do not belong together, or would do that,
are refused before anything is written, so that what was there before stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from samelog.config.client_state import pem_files_of
from samelog.config.pki.secret_files import why_shared
from samelog.config.schema.keys import keys_of
from samelog.config.schema.reader import TableReader
from samelog.config.tables.client import PemTexts
from samelog.config.tables.shared import TlsFiles

_BEGIN_LIST = b"-----BEGIN X509 CRL-----"
_UNUSABLE = (ValueError, TypeError, UnsupportedAlgorithm)


def read_client_tls(table: TableReader) -> TlsFiles:
    """The PEM files that a client's table names, or those that its texts are put into. Raises
    ConfigError.
    """
    texts = [key.name for key in keys_of(PemTexts) if table.has(key.name)]
    if not texts:
        return table.read(TlsFiles)
    for key in keys_of(TlsFiles):
        if table.has(key.name):
            raise table.error(key.name, f"there is {texts[0]} too: either paths or texts")
    _check(table, table.read(PemTexts))
    if not table.origin.is_remote and (reason := why_shared(os.path.abspath(table.origin.place))):
        raise table.error("key_pem", reason)
    return pem_files_of(table.origin.place)


def _check(table: TableReader, texts: PemTexts) -> None:
    authorities = _certificates(table, "ca_pem", texts.ca_pem)
    own = _certificates(table, "cert_pem", texts.cert_pem)[0]
    try:
        key = load_pem_private_key(texts.key_pem.encode(), password=None)
    except _UNUSABLE:
        raise table.error("key_pem", "not an unencrypted private key in PEM form") from None
    try:
        belongs = key.public_key() == own.public_key()
    except _UNUSABLE as error:
        raise table.error("cert_pem", f"its key is of no kind that is known: {error}") from error
    if not belongs:
        raise table.error("key_pem", "is not the key of cert_pem")
    problem = problem_of_lists(authorities, texts.crl_pem.encode()) if texts.crl_pem else ""
    if problem:
        raise table.error("crl_pem", problem)


def _certificates(table: TableReader, key: str, text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except _UNUSABLE as error:
        raise table.error(key, f"no certificates in PEM form: {error}") from error


def problem_of_lists(authorities: Iterable[x509.Certificate], pem: bytes) -> str:
    """Why these lists, PEM, are not one of every authority that counts now; empty if they are."""
    try:
        lists = [x509.load_pem_x509_crl(_BEGIN_LIST + part) for part in pem.split(_BEGIN_LIST)[1:]]
    except ValueError as error:
        return f"no revocation lists in PEM form: {error}"
    now = datetime.now(UTC)
    for authority in authorities:
        if not any(_counts_for(each, authority, now) for each in lists):
            return f"has no list of {authority.subject.rfc4514_string()} that counts now"
    return ""


def _counts_for(
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
