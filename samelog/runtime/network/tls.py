"""Mutual TLS: contexts from PEM files, and who the other side is.

TLS 1.3 only, both sides verified, no session tickets (a resumed session would skip the check of the
certificate). ALPN says what is spoken: `samelog/1`, or `http/1.1` for administration. The identity
is a SAN: the first URI `samelog://<role>/<name>`, else the first DNS name as `dns:<name>`; never
the CN. Peers are verified by authority and identity, not by host name: addresses change, names do
not.

Invariant: a context made here never accepts a peer without a certificate of our authority; files
that cannot be used never replace ones that can.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import time
from functools import lru_cache
from typing import NamedTuple, NewType

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from samelog.config.pki.pem_texts import problem_of_lists
from samelog.config.tables.shared import TlsFiles
from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name
from samelog.runtime.errors import ConnectProblem, IdentityFault, TlsFault

_LISTS_REMEDY = "it must hold a list of each authority, as PEM: `samelog pki revoke` makes it"
ALPN = "samelog/1"
HTTP_ALPN = "http/1.1"
"""What a client says that asks a node's own port for administration."""
NODE_PREFIX = "samelog://node/"

Identity = NewType("Identity", str)
"""`samelog://<role>/<name>` or `dns:<name>`, as rights are granted to."""

CACHED_CERTIFICATES = 4096
TRY_AGAIN_S = 1.0
"""Between two looks at the same files that could not be used: many ask, and each look costs."""

_URI = re.compile(r"samelog://(?P<role>[a-z]{1,32})/(?P<name>.+)")
_DNS = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The listening side's context. Raises TlsFault, naming the file and what to do."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files, ALPN, HTTP_ALPN)
    context.num_tickets = 0
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """The connecting side's context. Raises TlsFault, naming the file and what to do."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, files, ALPN)


def http_client_context(files: TlsFiles) -> ssl.SSLContext:
    """The context of who asks a node's own port over HTTP. Raises TlsFault."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, files, HTTP_ALPN)


def open_context(
    files: TlsFiles, *, ask_certificate: bool, may_lack: bool = False
) -> ssl.SSLContext:
    """The context of a listener for other programs than samelog's: TLS 1.2 at least, no ALPN;
    clients show a certificate of the authority only if asked for one, and `may_lack` it all the
    same. Raises TlsFault.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _check_key_is_private(files.key)
    if ask_certificate:
        context.verify_mode = ssl.CERT_OPTIONAL if may_lack else ssl.CERT_REQUIRED
        context.num_tickets = 0  # a resumed session would skip the check of the certificate
        context.options |= ssl.OP_NO_TICKET
        _load_authority(context, files)
    _load_own(context, files)
    return context


def open_client_context(files: TlsFiles, *, show_certificate: bool) -> ssl.SSLContext:
    """The context of who connects to such a listener, which is known by its host name. Raises
    TlsFault.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authority(context, files)
    if show_certificate:
        _check_key_is_private(files.key)
        _load_own(context, files)
    return context


def identity_of(ssl_object: ssl.SSLObject | ssl.SSLSocket, *, server_side: bool) -> Identity:
    """Who the peer of a finished handshake is. Raises IdentityFault."""
    protocol = ssl_object.selected_alpn_protocol()
    if protocol not in (ALPN, HTTP_ALPN):
        raise IdentityFault(
            ConnectProblem.WRONG_PROTOCOL,
            f"the peer speaks {protocol!r}, not {ALPN!r}",
            remedy="connect samelog to samelog's own port",
        )
    certificate = ssl_object.getpeercert(binary_form=True)
    if certificate is None:
        raise IdentityFault(
            ConnectProblem.NO_CERTIFICATE, "the peer has no certificate", remedy="give it one"
        )
    wanted = ExtendedKeyUsageOID.CLIENT_AUTH if server_side else ExtendedKeyUsageOID.SERVER_AUTH
    return identity_of_certificate(certificate, purpose=wanted)


@lru_cache(maxsize=CACHED_CERTIFICATES)
def identity_of_certificate(der: bytes, *, purpose: ObjectIdentifier) -> Identity:
    """The identity in a verified certificate for `purpose`. Raises IdentityFault."""
    certificate = x509.load_der_x509_certificate(der)
    _check_purpose(certificate, purpose)
    names = _alternative_names(certificate)
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith("samelog:"):
            return _checked_uri(uri)
    for name in names.get_values_for_type(x509.DNSName):
        return _checked_dns_name(name)
    raise _no_identity("its subject alternative names hold neither a samelog:// URI nor a DNS name")


class _Signature(NamedTuple):
    """Facts about a file that change when it is replaced."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int
    """Its owner and mode, too."""


class ReloadingContext:
    """Contexts that follow their files; connections that exist stay as they are."""

    def __init__(self, files: TlsFiles, *, own: str | None = None) -> None:
        """`own`: the identity that the certificate has to be for, in both directions. Raises
        TlsFault when the files cannot be used.
        """
        self._files, self._own = files, own
        self._seen = self._tried = signatures(files)
        self._next_try = 0.0
        self._told: set[str] = set()
        """What is wrong with the files that were tried last, as far as it was said."""
        self._server, self._client = self._load()

    @property
    def files(self) -> TlsFiles:
        """The paths of the files, to be watched."""
        return self._files

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that are accepted from now on."""
        return self._server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections that are made from now on."""
        return self._client

    def reload_if_changed(self) -> bool:
        """Take over changed files; True if there were any.

        Raises:
            TlsFault: the new files cannot be used (yet); the old contexts stay. The same fault is
            raised once until they change again; but they are tried again, as what hinders need not
            be in them (no descriptor left, a clock that is slow).
        """
        found, now = signatures(self._files), time.monotonic()
        if found == self._seen:
            return False
        if found != self._tried:
            self._told.clear()
        elif now < self._next_try:
            return False
        self._tried, self._next_try = found, now + TRY_AGAIN_S
        try:
            self._server, self._client = self._load()
        except TlsFault as fault:
            if str(fault) in self._told:
                return False
            self._told.add(str(fault))
            raise
        self._seen = found
        return True

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        contexts = server_context(self._files), client_context(self._files)
        if self._own is not None:
            _check_own(self._files.cert, self._own)
        return contexts


def _context(protocol: int, files: TlsFiles, *alpn: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(alpn)
    _check_key_is_private(files.key)
    _load_authority(context, files)
    _load_own(context, files)
    return context


def _load_authority(context: ssl.SSLContext, files: TlsFiles) -> None:
    path = files.ca
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise TlsFault(
            f"authority file {path!r} cannot be used: {_reason(error)}",
            remedy="it must hold the certificates of the authority, as PEM",
        ) from error
    if files.crl is not None and not (files.crl_may_lack and _lacks(files.crl)):
        _load_revocations(context, path, files.crl)


def _lacks(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # who reads it says why it cannot be
    return False


def _load_revocations(context: ssl.SSLContext, authorities: str, path: str) -> None:
    _check_revocations(authorities, path)
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise TlsFault(
            f"revocation lists {path!r} cannot be used: {_reason(error)}", remedy=_LISTS_REMEDY
        ) from error
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _check_revocations(authorities: str, path: str) -> None:
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
            f"revocation lists {path!r} cannot be used: {error}", remedy=_LISTS_REMEDY
        ) from error
    if problem:
        why = f"revocation lists {path!r} cannot be used: it {problem}"
        raise TlsFault(why, remedy=_LISTS_REMEDY)


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_cert_chain(files.cert, files.key, password=_refuse_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise TlsFault(
            f"certificate {files.cert!r} with key {files.key!r} cannot be used: {_reason(error)}",
            remedy="they must be PEM files, belong together, and the key must not be encrypted",
        ) from error


def _check_own(path: str, wanted: str) -> None:
    """Nobody would talk to a process that shows another's certificate: better said at once."""
    try:
        with open(path, "rb") as file:
            der = x509.load_pem_x509_certificate(file.read()).public_bytes(Encoding.DER)
        found = identity_of_certificate(der, purpose=ExtendedKeyUsageOID.SERVER_AUTH)
        identity_of_certificate(der, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        raise TlsFault(f"certificate {path!r} cannot be read: {error}") from error
    except IdentityFault as error:
        raise TlsFault(
            f"certificate {path!r} cannot be used: {error.message}", remedy=error.remedy
        ) from error
    if found != wanted:
        raise TlsFault(
            f"certificate {path!r} is of {found}, not of {wanted}",
            remedy="each node shows a certificate of its own name",
        )


def _refuse_password() -> str:
    """Called for an encrypted key only; without this OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted")


def _check_key_is_private(path: str) -> None:
    """As PostgreSQL: own files 0600; those of root may be open to a group (mounted secrets)."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TlsFault(
            f"key {path!r} cannot be read: {_reason(error)}", remedy="check the path"
        ) from error
    allowed = 0o750 if status.st_uid == 0 else 0o700
    mode = stat.S_IMODE(status.st_mode)
    if mode & ~allowed & 0o777:
        raise TlsFault(f"key {path!r} is open to others (mode {mode:04o})", remedy="chmod 600 it")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def signatures(files: TlsFiles) -> tuple[_Signature, ...]:
    """Another value whenever one of the files has changed."""
    return tuple(_signature(path) for path in files.paths)


def _signature(path: str) -> _Signature:
    try:
        status = os.stat(path)
    except OSError:  # who reads it says why it cannot be
        return _Signature(0, 0, 0, 0)
    return _Signature(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _check_purpose(certificate: x509.Certificate, purpose: ObjectIdentifier) -> None:
    """OpenSSL lets a certificate without the extension pass for everything; samelog does not."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        allowed = False
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise _no_identity(f"its extensions cannot be read: {error}") from error
    else:
        allowed = purpose in extension.value
    if not allowed:
        wanted = "clientAuth" if purpose == ExtendedKeyUsageOID.CLIENT_AUTH else "serverAuth"
        raise IdentityFault(
            ConnectProblem.WRONG_PURPOSE,
            f"the certificate is not for {wanted}",
            remedy=f"issue it with extended key usage {wanted}",
        )


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise _no_identity(
            "it has no subject alternative name (a common name is not one)"
        ) from error


def _checked_uri(uri: str) -> Identity:
    match = _URI.fullmatch(uri)
    if match is None:
        raise _no_identity(f"its URI {uri!a} is not samelog://<role>/<name>")
    try:
        check_session_name(match["name"])
    except InvalidName as error:
        raise _no_identity(str(error)) from error
    return Identity(uri)


def _checked_dns_name(name: str) -> Identity:
    lowered = name.lower()
    if _DNS.fullmatch(lowered) is None:
        raise _no_identity(f"its DNS name {name!a} names no single host")
    return Identity(f"dns:{lowered}")


def _no_identity(message: str) -> IdentityFault:
    return IdentityFault(
        ConnectProblem.NO_IDENTITY,
        f"the peer's certificate names no identity: {message}",
        remedy="issue it with the URI SAN samelog://<role>/<name>",
    )
