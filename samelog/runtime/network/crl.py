"""Files of revocation lists before OpenSSL gets them: config/pki/pem_texts.py says why."""

from __future__ import annotations

from cryptography import x509

from samelog.config.pki.pem_texts import problem_of_lists
from samelog.runtime.errors import TlsFault

REMEDY = "it must hold a list of each authority, as PEM: `samelog pki revoke` makes it"


def check_revocations(authorities: str, path: str) -> None:
    """Whether the file `path` has a list of every authority in the file `authorities` that counts
    now. Raises TlsFault.
    """
    try:
        with open(authorities, "rb") as file:
            known = x509.load_pem_x509_certificates(file.read())
        with open(path, "rb") as file:
            problem = problem_of_lists(known, file.read())
    except (OSError, ValueError) as error:
        raise TlsFault(
            f"revocation lists {path!r} cannot be used: {error}", remedy=REMEDY
        ) from error
    if problem:
        raise TlsFault(f"revocation lists {path!r} cannot be used: it {problem}", remedy=REMEDY)
