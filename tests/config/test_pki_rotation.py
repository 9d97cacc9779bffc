"""Certificates and authorities in the place of others, and who is not let in any more."""

from __future__ import annotations

import json
import os
import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samelog.cli.main import main
from samelog.config.pki.authority import (
    CertificateRole,
    PkiError,
    create_authority,
    describe,
    issue,
)
from samelog.config.pki.rotation import (
    finish_authority,
    refresh_lists,
    revoke,
    revoke_file,
    revoked_serials,
    rotate,
    rotate_authority,
)
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.tls import ReloadingContext, client_context, server_context

NODE = "node-rt-0"
CLIENT = "publisher-ewr"


@pytest.fixture
def pki(tmp_path: Path) -> str:
    directory = str(tmp_path / "pki")
    create_authority(directory, "demo")
    refresh_lists(directory)
    issue(directory, CertificateRole.NODE, "rt-0", hosts=("rt0.example.com", "10.0.0.7"))
    issue(directory, CertificateRole.PUBLISHER, "ewr")
    return directory


def files(directory: str, stem: str, *, crl: bool = True) -> TlsFiles:
    at = os.path.join(directory, stem)
    lists = os.path.join(directory, "crl.pem") if crl else None
    return TlsFiles(ca=f"{directory}/ca.pem", cert=f"{at}.pem", key=f"{at}.key", crl=lists)


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """What comes of a handshake in memory: empty, or why it failed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return str(error)
    return ""


def meet(directory: str) -> str:
    """What comes of a publisher's connecting to a node."""
    return shake(server_context(files(directory, NODE)), client_context(files(directory, CLIENT)))


def test_a_rotated_certificate_has_the_same_names_and_another_key(pki: str) -> None:
    old, key = describe(f"{pki}/{NODE}.pem"), Path(pki, f"{NODE}.key").read_bytes()
    rotate(pki, CertificateRole.NODE, "rt-0", days=30)
    new = describe(f"{pki}/{NODE}.pem")
    assert (new.identity, new.names) == (old.identity, old.names)
    assert new.serial != old.serial
    assert Path(pki, f"{NODE}.key").read_bytes() != key
    assert os.stat(f"{pki}/{NODE}.key").st_mode & 0o777 == 0o600
    kept = os.path.join(pki, "replaced")
    assert os.stat(kept).st_mode & 0o777 == 0o700
    assert len(os.listdir(kept)) == 2
    assert meet(pki) == ""


def test_an_authority_changes_without_a_gap(pki: str) -> None:
    """Whoever has the newest ca.pem meets whoever has any certificate that still counts."""
    old_node = client_context(files(pki, NODE))
    rotate_authority(pki, "demo")
    assert meet(pki) == ""
    with pytest.raises(PkiError, match="finish the last change first"):
        rotate_authority(pki, "demo")
    with pytest.raises(PkiError, match=r"rotate these first.*node-rt-0\.pem"):
        finish_authority(pki)
    rotate(pki, CertificateRole.PUBLISHER, "ewr")
    assert meet(pki) == ""
    rotate(pki, CertificateRole.NODE, "rt-0")
    assert meet(pki) == ""
    assert len(finish_authority(pki)) == 1
    assert meet(pki) == ""
    assert shake(server_context(files(pki, NODE)), old_node) != ""


def test_who_is_revoked_is_not_let_in(pki: str) -> None:
    serial = describe(f"{pki}/{CLIENT}.pem").serial
    assert meet(pki) == ""
    revoke(pki, serial)
    assert "revoked" in meet(pki)
    assert revoked_serials(pki) == {serial}
    rotate(pki, CertificateRole.PUBLISHER, "ewr")
    assert meet(pki) == ""


def test_a_revoked_node_is_not_connected_to(pki: str) -> None:
    revoke(pki, describe(f"{pki}/{NODE}.pem").serial)
    assert "revoked" in meet(pki)


def test_who_is_revoked_stays_so_while_the_authority_changes(pki: str) -> None:
    revoke(pki, describe(f"{pki}/{CLIENT}.pem").serial)
    rotate_authority(pki, "demo")
    assert "revoked" in meet(pki)
    revoke(pki, describe(f"{pki}/{NODE}.pem").serial)
    assert len(revoked_serials(pki)) == 2
    server_context(files(pki, NODE))  # its list is of both authorities


def test_what_no_list_can_revoke_is_refused(pki: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    create_authority(other, "demo")
    foreign = issue(other, CertificateRole.PUBLISHER, "ewr").cert
    for path, why in ((foreign, "has signed it"), (f"{pki}/ca.pem", "not revoked but replaced")):
        with pytest.raises(PkiError, match=why):
            revoke_file(pki, path)
    with pytest.raises(PkiError, match="neither a certificate's file nor"):
        revoke(pki, f"{pki}/nobody.pem")
    assert revoked_serials(pki) == set()


def test_lists_that_would_lock_everybody_out_are_refused(pki: str, tmp_path: Path) -> None:
    contexts = ReloadingContext(files(pki, NODE))
    before = contexts.server
    other = str(tmp_path / "other")
    create_authority(other, "demo")
    refresh_lists(other)
    good = Path(pki, "crl.pem").read_bytes()
    for bad in (Path(other, "crl.pem").read_bytes(), b"", b"-----BEGIN X509 CRL-----\nnonsense"):
        Path(pki, "crl.pem").write_bytes(bad)
        with pytest.raises(TlsFault, match=r"crl\.pem"):
            contexts.reload_if_changed()
        assert contexts.server is before
    Path(pki, "crl.pem").write_bytes(good + good)
    assert contexts.reload_if_changed()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pki", *arguments])


def test_the_command_line(tmp_path: Path) -> None:
    pki = str(tmp_path / "pki")
    assert run("init", "--dir", pki, "--name", "demo").exit_code == 0
    assert run("issue", "--dir", pki, "publisher", "ewr").exit_code == 0
    assert run("rotate", "--dir", pki, "publisher", "ewr").exit_code == 0
    assert run("revoke", "--dir", pki, f"{pki}/{CLIENT}.pem").exit_code == 0
    assert "revoked" in run("list", "--dir", pki).stdout
    listed = json.loads(run("list", "--dir", pki, "--json").stdout)
    assert [each["revoked"] for each in listed] == [False, True]
    assert run("rotate", "--dir", pki, "ca", "demo").exit_code == 0
    result = run("rotate", "--dir", pki, "ca", "--finish")
    assert result.exit_code == 1
    assert "rotate these first" in result.stderr
    assert run("rotate", "--dir", pki, "publisher", "ewr").exit_code == 0
    assert run("rotate", "--dir", pki, "ca", "--finish", "--json").exit_code == 0
    assert run("rotate", "--dir", pki, "publisher").exit_code == 2
    assert run("rotate", "--dir", pki, "publisher", "nobody").exit_code == 1
    assert run("revoke", "--dir", pki, "not-hexadecimal").exit_code == 1
