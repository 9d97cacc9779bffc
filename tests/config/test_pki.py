"""Certificates: what they say, who accepts them, and that nothing is ever overwritten."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.config.pki import authority
from samelog.format.errors import InvalidName


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A directory with a new authority."""
    path = str(tmp_path / "pki")
    authority.create_authority(path, "test")
    return path


def read(path: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def shake_hands(
    server: authority.IssuedFiles, client: authority.IssuedFiles, ca: str
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a TLS connection in memory, verified on both sides."""
    contexts = []
    for purpose, files in ((ssl.PROTOCOL_TLS_SERVER, server), (ssl.PROTOCOL_TLS_CLIENT, client)):
        context = ssl.SSLContext(purpose)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca)
        context.load_cert_chain(files.cert, files.key)
        contexts.append(context)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        contexts[0].wrap_bio(there, back, server_side=True),
        contexts[1].wrap_bio(back, there, server_side=False),
    )
    for end in (ends[1], ends[0], ends[1], ends[0]):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return ends


def test_a_node_and_a_client_accept_each_other(directory: str) -> None:
    node = authority.issue(
        directory, authority.CertificateRole.NODE, "n0", hosts=["localhost", "127.0.0.1", "::1"]
    )
    client = authority.issue(directory, authority.CertificateRole.PUBLISHER, "ewr")
    server_end, client_end = shake_hands(node, client, f"{directory}/ca.pem")
    seen = client_end.getpeercert()
    assert seen is not None
    assert seen["subjectAltName"] == (
        ("URI", "samelog://node/n0"),
        ("DNS", "localhost"),
        ("IP Address", "127.0.0.1"),
        ("IP Address", "0:0:0:0:0:0:0:1"),
    )
    seen = server_end.getpeercert()
    assert seen is not None
    assert seen["subjectAltName"] == (("URI", "samelog://publisher/ewr"),)


def test_a_client_certificate_can_not_serve(directory: str) -> None:
    client = authority.issue(directory, authority.CertificateRole.CLIENT, "a")
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(client, client, f"{directory}/ca.pem")


@pytest.mark.parametrize("role", list(authority.CertificateRole))
def test_usage_by_role(directory: str, role: authority.CertificateRole) -> None:
    files = authority.issue(directory, role, "x", days=7)
    certificate = x509.load_pem_x509_certificate(Path(files.cert).read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.CLIENT_AUTH in usage
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == (role is authority.CertificateRole.NODE)
    info = authority.describe(files.cert)
    assert info.identity == f"samelog://{role.value}/x"
    assert not info.authority
    assert 7 <= (info.not_after - info.not_before).days <= 8


def test_who_has_a_host_name_may_serve(directory: str) -> None:
    """As a sidecar that answers HTTP."""
    made = authority.issue(
        directory, authority.CertificateRole.SUBSCRIBER, "s", hosts=["*.example.com"]
    )
    certificate = x509.load_pem_x509_certificate(Path(made.cert).read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert ExtendedKeyUsageOID.SERVER_AUTH in usage


def test_an_authority_of_another_name_did_not_sign(directory: str, tmp_path: Path) -> None:
    other = authority.create_authority(str(tmp_path / "other"), "test")
    files = authority.issue(directory, authority.CertificateRole.NODE, "n0")
    issued = read(files.cert)
    issued.verify_directly_issued_by(read(f"{directory}/ca.pem"))
    with pytest.raises((InvalidSignature, ValueError)):
        issued.verify_directly_issued_by(read(other.cert))
    assert authority.describe(other.cert).authority


def test_keys_are_for_their_owner_and_nothing_else_is_left(directory: str) -> None:
    files = authority.issue(directory, authority.CertificateRole.NODE, "n0")
    assert stat.S_IMODE(os.stat(files.key).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{directory}/ca.key").st_mode) == 0o600
    names = ["ca.key", "ca.pem", "node-n0.key", "node-n0.pem"]
    assert sorted(os.listdir(directory)) == names
    assert [info.path for info in authority.list_certificates(directory)] == [
        os.path.join(directory, name) for name in names if name.endswith(".pem")
    ]


def test_nothing_is_overwritten(directory: str) -> None:
    files = authority.issue(directory, authority.CertificateRole.NODE, "n0")
    before = Path(files.key).read_bytes()
    with pytest.raises(authority.PkiError, match="never overwritten"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0")
    with pytest.raises(authority.PkiError, match="never overwritten"):
        authority.create_authority(directory, "again")
    os.unlink(files.cert)
    with pytest.raises(authority.PkiError, match=r"node-n0\.key: exists"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0")
    assert Path(files.key).read_bytes() == before


def test_what_can_not_be_issued(directory: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidName):
        authority.issue(directory, authority.CertificateRole.NODE, "../n0")
    with pytest.raises(authority.PkiError, match="3700 days is not between 1 and"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0", days=3700)
    with pytest.raises(authority.PkiError, match="neither an IP address nor"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0", hosts=["é"])
    for host in ("bad host", "", "a..b", "*"):
        with pytest.raises(authority.PkiError, match="is neither an IP address nor"):
            authority.issue(directory, authority.CertificateRole.NODE, "n0", hosts=[host])
    with pytest.raises(authority.PkiError, match="run `samelog pki init` first"):
        authority.issue(str(tmp_path), authority.CertificateRole.NODE, "n0")
    assert sorted(os.listdir(directory)) == ["ca.key", "ca.pem"]


def test_a_key_of_another_authority_is_refused(directory: str, tmp_path: Path) -> None:
    other = authority.create_authority(str(tmp_path / "other"), "test")
    os.replace(other.key, f"{directory}/ca.key")
    with pytest.raises(authority.PkiError, match="is not the key of"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0")


def test_damaged_files_are_named(directory: str) -> None:
    Path(directory, "broken.pem").write_text("nothing")
    with pytest.raises(authority.PkiError, match=r"broken\.pem: not a certificate"):
        authority.list_certificates(directory)
    Path(directory, "ca.key").write_text("nothing")
    with pytest.raises(authority.PkiError, match=r"ca\.key: not an unencrypted private key"):
        authority.issue(directory, authority.CertificateRole.NODE, "n0")
    with pytest.raises(authority.PkiError, match="can't be read: No such file"):
        authority.describe(f"{directory}/none.pem")
