"""Certificates: whose identity they prove, which files are usable, and how new files take over."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.pki.rotation import refresh_lists
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.errors import ConnectProblem, IdentityFault, TlsFault
from samelog.runtime.network import tls as tls_module
from samelog.runtime.network.tls import (
    ReloadingContext,
    client_context,
    identity_of_certificate,
    server_context,
)
from tests.runtime.pki import Authority

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
CHECK = ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def der(files: TlsFiles) -> bytes:
    certificate = load_pem_x509_certificate(Path(files.cert).read_bytes())
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize(
    ("sans", "identity"),
    [
        (["samelog://publisher/ewr"], "samelog://publisher/ewr"),
        (["samelog://node/rt-sequencer-0"], "samelog://node/rt-sequencer-0"),
        (["dns:host.example.org"], "dns:host.example.org"),
        (["dns:Host.Example.ORG"], "dns:host.example.org"),
        (["dns:a.example.org", "dns:b.example.org"], "dns:a.example.org"),
        (["dns:a.example.org", "samelog://node/n1"], "samelog://node/n1"),
        (["samelog://node/n1", "samelog://node/n2"], "samelog://node/n1"),
        (["spiffe://demo/x", "samelog://node/n1"], "samelog://node/n1"),
        (["spiffe://demo/x", "dns:host"], "dns:host"),
    ],
)
def test_identities(tmp_path: Path, sans: list[str], identity: str) -> None:
    certificate = der(Authority(tmp_path).issue("x", *sans))
    assert identity_of_certificate(certificate, purpose=CLIENT) == identity


@pytest.mark.parametrize(
    "sans",
    [
        [],
        ["spiffe://demo/x"],
        ["samelog://node/"],
        ["samelog://NODE/n1"],
        ["samelog://node/n1/extra"],
        ["samelog://node/n1?x=y"],
        ["samelog://node/../n1"],
        ["samelog://node/n1%0a"],
        ["samelog://node/" + "n" * 129],
        ["samelog:node", "dns:host"],
        ["dns:*.example.org"],
        ["dns:a b"],
        ["dns:" + ".".join(["a" * 60] * 5)],
    ],
)
def test_certificates_that_name_nobody(tmp_path: Path, sans: list[str]) -> None:
    certificate = der(Authority(tmp_path).issue("samelog://node/n1", *sans))
    with pytest.raises(IdentityFault) as caught:
        identity_of_certificate(certificate, purpose=CLIENT)
    assert caught.value.problem is ConnectProblem.NO_IDENTITY
    assert caught.value.remedy


def test_purposes_are_kept_apart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for usages, allowed in (((CLIENT,), CLIENT), ((SERVER,), SERVER)):
        certificate = der(authority.issue("x", "samelog://node/n1", usages=usages))
        assert identity_of_certificate(certificate, purpose=allowed)
        other = SERVER if allowed == CLIENT else CLIENT
        with pytest.raises(IdentityFault) as caught:
            identity_of_certificate(certificate, purpose=other)
        assert caught.value.problem is ConnectProblem.WRONG_PURPOSE


def test_contexts_demand_everything(tmp_path: Path) -> None:
    files = Authority(tmp_path).node("n1")
    for context in (server_context(files), client_context(files)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert server_context(files).num_tickets == 0


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.node("n1")
    other = authority.node("n2")
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    nothing.chmod(0o600)
    missing = str(tmp_path / "missing.pem")
    bad = [
        TlsFiles(ca=missing, cert=good.cert, key=good.key),
        TlsFiles(ca=str(nothing), cert=good.cert, key=good.key),
        TlsFiles(ca=good.ca, cert=missing, key=good.key),
        TlsFiles(ca=good.ca, cert=str(nothing), key=good.key),
        TlsFiles(ca=good.ca, cert=good.cert, key=missing),
        TlsFiles(ca=good.ca, cert=good.cert, key=str(nothing)),
        TlsFiles(ca=good.ca, cert=good.cert, key=other.key),
    ]
    for files in bad:
        with pytest.raises(TlsFault) as caught:
            server_context(files)
        assert "cannot be" in caught.value.message
        assert caught.value.remedy


def test_an_encrypted_key_is_refused_without_asking(tmp_path: Path) -> None:
    files = Authority(tmp_path).node("n1")
    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    Path(files.key).write_bytes(encrypted)
    with pytest.raises(TlsFault, match="encrypted"):
        client_context(files)


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o660, 0o666])
def test_keys_open_to_others_are_refused(tmp_path: Path, mode: int) -> None:
    files = Authority(tmp_path).node("n1")
    os.chmod(files.key, mode)
    with pytest.raises(TlsFault, match="chmod 600"):
        server_context(files)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_private_keys_are_taken(tmp_path: Path, mode: int) -> None:
    files = Authority(tmp_path).node("n1")
    os.chmod(files.key, mode)
    assert isinstance(server_context(files), ssl.SSLContext)


def test_unchanged_files_are_not_loaded_again(tmp_path: Path) -> None:
    tls = ReloadingContext(Authority(tmp_path).node("n1"))
    before = tls.server, tls.client
    assert not tls.reload_if_changed()
    assert (tls.server, tls.client) == before


def test_new_files_are_taken_over_and_bad_ones_are_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.node("n1")
    tls = ReloadingContext(files)
    before = tls.server, tls.client
    Path(files.cert).write_text("half a certifica")
    with pytest.raises(TlsFault):
        tls.reload_if_changed()
    assert not tls.reload_if_changed()  # it was said
    assert (tls.server, tls.client) == before
    Path(files.cert).unlink()
    with pytest.raises(TlsFault):
        tls.reload_if_changed()
    authority.node("n1")
    assert tls.reload_if_changed()
    assert not tls.reload_if_changed()
    assert tls.server is not before[0]
    assert tls.client is not before[1]


def test_a_certificate_replaced_before_its_key_is_not_taken_until_both_are_there(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    files = authority.node("n1")
    tls = ReloadingContext(files)
    renewed = authority.issue("new", "samelog://node/n1")
    os.replace(renewed.cert, files.cert)
    with pytest.raises(TlsFault):
        tls.reload_if_changed()
    os.replace(renewed.key, files.key)
    assert tls.reload_if_changed()


def test_another_nodes_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.node("n1")
    with pytest.raises(TlsFault, match=r"is of samelog://node/n1, not of samelog://node/n2"):
        ReloadingContext(files, own="samelog://node/n2")
    tls = ReloadingContext(files, own="samelog://node/n1")
    before = tls.server
    other = authority.node("n2")
    os.replace(other.key, files.key)
    os.replace(other.cert, files.cert)
    with pytest.raises(TlsFault, match="each node shows a certificate of its own name"):
        tls.reload_if_changed()
    assert tls.server is before


def test_a_nodes_certificate_is_for_both_directions(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("n1", "samelog://node/n1", usages=(CLIENT,))
    with pytest.raises(TlsFault, match="the certificate is not for serverAuth"):
        ReloadingContext(files, own="samelog://node/n1")


def test_a_fault_that_is_not_the_files_passes_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "TRY_AGAIN_S", 0.0)
    authority = Authority(tmp_path)
    tls = ReloadingContext(authority.node("n1"))
    faults = iter(["no descriptor", "no memory", "no descriptor"])

    def hinder(files: TlsFiles) -> ssl.SSLContext:
        raise TlsFault(next(faults))

    authority.node("n1")
    with monkeypatch.context() as hindered:
        hindered.setattr(tls_module, "server_context", hinder)
        for why in ("no descriptor", "no memory"):
            with pytest.raises(TlsFault, match=why):
                tls.reload_if_changed()
        assert not tls.reload_if_changed()  # it was said
        assert next(faults, None) is None
    assert tls.reload_if_changed()


def test_files_that_cannot_be_used_are_not_tried_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "TRY_AGAIN_S", 1000.0)
    files = Authority(tmp_path).node("n1")
    tls = ReloadingContext(files)
    good = Path(files.cert).read_bytes()
    Path(files.cert).write_text("half a certifica")
    with pytest.raises(TlsFault):
        tls.reload_if_changed()
    monkeypatch.setattr(ReloadingContext, "_load", lambda self: pytest.fail("tried again"))
    assert not tls.reload_if_changed()
    monkeypatch.undo()
    Path(files.cert).write_bytes(good)
    assert tls.reload_if_changed()


def test_files_behind_no_directory_are_a_fault_of_theirs(tmp_path: Path) -> None:
    files = Authority(tmp_path).node("n1")
    tls = ReloadingContext(files)
    beside = Path(files.cert).parent
    beside.rename(beside.with_name("away"))
    beside.write_text("no directory")
    with pytest.raises(TlsFault):
        tls.reload_if_changed()


def test_lists_come_and_go_where_they_may(tmp_path: Path) -> None:
    pki = str(tmp_path / "pki")
    create_authority(pki, "demo")
    made = issue(pki, CertificateRole.CLIENT, "c")
    crl = tmp_path / "crl.pem"
    files = TlsFiles(
        ca=f"{pki}/ca.pem", cert=made.cert, key=made.key, crl=str(crl), crl_may_lack=True
    )
    tls = ReloadingContext(files)

    def is_asked() -> bool:
        flags = {bool(x.verify_flags & CHECK) for x in (tls.server, tls.client)}
        return flags == {True}

    assert not is_asked()
    refresh_lists(pki)
    crl.write_bytes(Path(pki, "crl.pem").read_bytes())
    assert tls.reload_if_changed()
    assert is_asked()
    crl.write_text("")
    with pytest.raises(TlsFault, match="has no list of"):
        tls.reload_if_changed()
    assert is_asked()
    crl.unlink()
    assert tls.reload_if_changed()
    assert not is_asked()
    with pytest.raises(TlsFault, match="revocation lists"):
        ReloadingContext(replace(files, crl_may_lack=False))
