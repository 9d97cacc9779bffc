"""Who is who without TLS: the bytes of a simulated connection are plain, each side says its name
first.

Everything of a real connection above its TLS library stays: certificates are real ones, so their
identities are read as always, but nothing is signed or encrypted on the way.

Invariant: a handshake is complete only when both have heard the other's name.
"""

from __future__ import annotations

import datetime
import ssl
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.runtime.network.tls import ALPN

_START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@cache
def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def certificate_of(identity: str) -> bytes:
    """A certificate that says so."""
    name = x509.Name([])
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    builder = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(_key().public_key())
        .serial_number(1)
        .not_valid_before(_START)
        .not_valid_after(_START + datetime.timedelta(days=365))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True
        )
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    )
    return builder.sign(_key(), hashes.SHA256()).public_bytes(serialization.Encoding.DER)


class SimContext:
    """Stands for an ssl.SSLContext."""

    def __init__(self, identity: str) -> None:
        self._identity = identity.encode()

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *, server_side: bool
    ) -> SimSession:
        return SimSession(incoming, outgoing, self._identity)


class SimSession:
    """Stands for an ssl.SSLObject."""

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, own: bytes) -> None:
        self.write = outgoing.write
        self._incoming = incoming
        self._outgoing = outgoing
        self._own = own
        self._has_spoken = False
        self._heard = bytearray()

    def do_handshake(self) -> None:
        """Say who this is; raises SSLWantReadError until the other has said it too."""
        if not self._has_spoken:
            self._has_spoken = True
            self._outgoing.write(bytes([len(self._own)]) + self._own)
        while not self._heard or len(self._heard) <= self._heard[0]:
            wanted = self._heard[0] + 1 - len(self._heard) if self._heard else 1
            data = self._incoming.read(wanted)
            if not data:
                raise ssl.SSLWantReadError
            self._heard += data

    def selected_alpn_protocol(self) -> str:
        return ALPN

    def getpeercert(self, binary_form: bool) -> bytes:
        return certificate_of(self._heard[1:].decode())

    def pending(self) -> int:
        return 0

    def read(self, size: int, buffer: memoryview) -> int:
        data = self._incoming.read(size)
        if not data:
            raise ssl.SSLWantReadError
        buffer[: len(data)] = data
        return len(data)

    def unwrap(self) -> None:
        """The end of the bytes says goodbye as well."""


class SimTls:
    """Stands for a ReloadingContext."""

    def __init__(self, identity: str) -> None:
        self.client = self.server = SimContext(identity)

    def reload_if_changed(self) -> bool:
        return False
