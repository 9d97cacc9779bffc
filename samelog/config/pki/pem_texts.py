"""Certificates and a key as texts within a client's configuration, instead of files beside it.

OpenSSL wants files, so they are put into some (client_state.py); everybody else sees only those.
Invariant: texts that do not belong together, or are no PEM, are refused before anything is written.
"""

from __future__ import annotations

import os

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from samelog.config.client_state import PEM_FILES, held_files
from samelog.config.pki.files import check_secret, load_tls
from samelog.config.pki.revocation import problem_of_lists
from samelog.config.table import Table
from samelog.config.tables.shared import TlsFiles

_UNUSABLE = (ValueError, TypeError, UnsupportedAlgorithm)


def load_client_tls(table: Table) -> TlsFiles:
    """The PEM files that a client's table names, or those that its texts are put into. Raises
    ConfigError.
    """
    texts = [key for key in PEM_FILES if table.has(key)]
    if not texts:
        return load_tls(table)
    for key in PEM_FILES:
        path = key.removesuffix("_pem")
        if table.has(path):
            raise table.error(path, f"there is {texts[0]} too: either paths or texts")
    _check(table)
    if not table.origin.is_remote:
        check_secret(table, "key_pem", os.path.abspath(table.origin.place))
    return held_files(table.origin.place)


def _check(table: Table) -> None:
    authorities = _certificates(table, "ca_pem")
    own = _certificates(table, "cert_pem")[0]
    try:
        key = load_pem_private_key(table.text("key_pem").encode(), password=None)
    except _UNUSABLE:
        raise table.error("key_pem", "not an unencrypted private key in PEM form") from None
    try:
        belongs = key.public_key() == own.public_key()
    except _UNUSABLE as error:
        raise table.error("cert_pem", f"its key is of no kind that is known: {error}") from error
    if not belongs:
        raise table.error("key_pem", "is not the key of cert_pem")
    if table.has("crl_pem"):
        problem = problem_of_lists(authorities, table.text("crl_pem").encode())
        if problem:
            raise table.error("crl_pem", problem)


def _certificates(table: Table, key: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(table.text(key).encode())
    except _UNUSABLE as error:
        raise table.error(key, f"no certificates in PEM form: {error}") from error
