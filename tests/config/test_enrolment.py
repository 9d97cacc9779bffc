"""All that a client needs in one file: written by `samelog pki enrol`, loaded, refused if odd."""

from __future__ import annotations

import json
import os
import re
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from samelog.cli.main import main
from samelog.config.client_state import STATE_VARIABLE
from samelog.config.load import load_client
from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.pki.rotation import refresh_lists, rotate, rotate_authority
from samelog.config.values import Address, ConfigError
from samelog.runtime.network.tls import client_context
from samelog.subscriber.setup import _chosen_topics

NODES = ("--node", "n0=h0:7000", "--node", "n1=h1:7000")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def pki(tmp_path: Path) -> str:
    create_authority(str(tmp_path / "pki"), "demo")
    refresh_lists(str(tmp_path / "pki"))
    return str(tmp_path / "pki")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def enrol(pki: str, out: Path, *options: str, role: str = "subscriber") -> Result:
    given = (*NODES, "--cluster", "demo", *options)
    return run("pki", "enrol", role, "ewr", "--dir", pki, "--out", str(out), *given)


@pytest.fixture
def file(pki: str, tmp_path: Path) -> Path:
    """An enrolment."""
    found = enrol(pki, tmp_path / "ewr.toml", "--topic", "flights", "--topic", "weather")
    assert found.exit_code == 0, found.output
    return tmp_path / "ewr.toml"


def test_one_file_is_all_that_a_client_needs(file: Path, pki: str, state: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    config = load_client(str(file))
    assert config.nodes == (Address("h0", 7000), Address("h1", 7000))
    assert (config.cluster, config.node_names) == ("demo", ("n0", "n1"))
    assert config.subscriber.topics == ("flights", "weather")
    files = config.tls
    for found, kept in zip(
        files.paths, ("ca.pem", "subscriber-ewr.pem", "subscriber-ewr.key", "crl.pem"), strict=True
    ):
        assert Path(found).read_bytes() == Path(pki, kept).read_bytes()
        assert found.startswith(str(state))
    client_context(files)
    for place, directories, names in os.walk(state / "clients"):
        modes = {stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode) for name in names}
        assert modes <= {0o600}, place
        assert all(
            stat.S_IMODE(os.stat(os.path.join(place, d)).st_mode) == 0o700 for d in directories
        )


def test_texts_that_change_are_put_into_files_all_at_once(
    file: Path, pki: str, state: Path
) -> None:
    before = load_client(str(file)).tls
    old = Path(before.cert).read_bytes()
    [held] = (state / "clients").iterdir()
    link = os.readlink(held / "tls")
    assert load_client(str(file)).tls == before
    assert os.readlink(held / "tls") == link  # nothing was rewritten
    rotate(pki, CertificateRole.SUBSCRIBER, "ewr")
    assert enrol(pki, file).exit_code == 0
    assert load_client(str(file)).tls == before
    assert Path(before.cert).read_bytes() == Path(pki, "subscriber-ewr.pem").read_bytes() != old
    assert sorted(path.name for path in held.iterdir()) == [
        "lock",
        "tls",
        os.readlink(held / "tls"),
    ]


def test_what_a_killed_process_left_is_removed(file: Path, state: Path) -> None:
    load_client(str(file))
    [held] = (state / "clients").iterdir()
    wanted = sorted(path.name for path in held.iterdir())
    (held / "tmpabc").write_text("half a key")
    (held / "tls-abc").mkdir()
    (held / "tls-abc" / "tmpdef").write_text("half a key")
    (held / "tls-abc.link").symlink_to("tls-abc")
    load_client(str(file))
    assert sorted(path.name for path in held.iterdir()) == wanted


def test_a_new_authority_is_in_it_with_the_old_one(file: Path, pki: str) -> None:
    rotate_authority(pki, "demo")
    assert enrol(pki, file).exit_code == 0
    files = load_client(str(file)).tls
    assert Path(files.ca).read_text().count("BEGIN CERTIFICATE") == 2
    client_context(files)


def without(key: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"^{key} = '''.*?'''\n", "", text, flags=re.DOTALL | re.MULTILINE)


def inside(key: str, pem: str) -> Callable[[str], str]:
    return lambda text: re.sub(
        rf"^{key} = '''.*?'''", f"{key} = '''{pem}'''", text, flags=re.DOTALL | re.MULTILINE
    )


ODD: dict[str, tuple[Callable[[str], str], str]] = {
    "a path too": (lambda text: f'ca = "ca.pem"\n{text}', "ca: there is ca_pem too: either paths"),
    "no key": (without("key_pem"), "key_pem: missing"),
    "no authority": (without("ca_pem"), "ca_pem: missing"),
    "no PEM": (inside("cert_pem", "pem"), "cert_pem: no certificates in PEM form"),
    "no PEM key": (inside("key_pem", "pem"), "key_pem: not an unencrypted private key"),
    "no PEM list": (inside("crl_pem", "pem"), "crl_pem: has no list of CN="),
    "no text": (lambda text: f"ca_pem = 1\n{without('ca_pem')(text)}", "ca_pem: 1 is not a text"),
    "a list": (
        lambda text: f"key_pem = ['hidden']\n{without('key_pem')(text)}",
        "key_pem: what is there is not a text",
    ),
    "a topic twice": (
        lambda text: text.replace('"weather"', '"flights"'),
        "subscriber.topics: 'flights' is there twice",
    ),
    "no topic": (lambda text: text.replace('"weather"', '"a b"'), "subscriber.topics: "),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_refused_and_changes_nothing(name: str, file: Path) -> None:
    change, message = ODD[name]
    files = load_client(str(file)).tls
    before = [Path(path).read_bytes() for path in files.paths]
    file.write_text(change(file.read_text()))
    with pytest.raises(ConfigError, match=re.escape(f"{file}: {message}")):
        load_client(str(file))
    assert [Path(path).read_bytes() for path in files.paths] == before


def test_a_key_of_somebody_else_is_refused(file: Path, pki: str) -> None:
    other = Path(issue(pki, CertificateRole.CLIENT, "other").key).read_text()
    file.write_text(inside("key_pem", other)(file.read_text()))
    with pytest.raises(ConfigError, match="key_pem: is not the key of cert_pem"):
        load_client(str(file))


def test_a_certificate_of_an_unknown_kind_is_refused(file: Path, pki: str) -> None:
    found = x509.load_pem_x509_certificate(Path(pki, "subscriber-ewr.pem").read_bytes())
    known, unknown = bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0209")
    der = found.public_bytes(Encoding.DER).replace(known, unknown)
    pem = ssl.DER_cert_to_PEM_cert(der)
    good = file.read_text()
    file.write_text(inside("cert_pem", pem)(good))
    with pytest.raises(ConfigError, match="cert_pem: its key is of no kind that is known"):
        load_client(str(file))
    authority = x509.load_pem_x509_certificate(Path(pki, "ca.pem").read_bytes())
    der = authority.public_bytes(Encoding.DER).replace(known, unknown)
    file.write_text(inside("ca_pem", ssl.DER_cert_to_PEM_cert(der))(good))
    with pytest.raises(ConfigError, match="crl_pem: has no list of CN="):
        load_client(str(file))


def test_the_file_must_be_as_private_as_a_key(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"key_pem: .* can be used by others"):
        load_client(str(file))


def test_a_key_is_neither_shown_nor_taken_from_the_environment(
    file: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("config", "check", str(file)).exit_code == 0
    shown = run("config", "show", str(file)).stdout
    as_json = run("config", "show", str(file), "--json").stdout
    assert not state.exists()  # looking leaves nothing behind
    for text in (shown, as_json):
        assert "PRIVATE KEY" not in text
        assert "BEGIN CERTIFICATE" in text
    values = {each["key"]: each["value"] for each in json.loads(as_json)}
    assert values["key_pem"] == "(a secret)"
    monkeypatch.setenv("SAMELOG_KEY_PEM", "x")
    assert "SAMELOG_KEY_PEM names no key" in run("config", "check", str(file)).stderr


@pytest.mark.parametrize("kind", ["open", "of another kind"])
def test_a_place_that_is_not_private_is_refused(kind: str, file: Path, state: Path) -> None:
    load_client(str(file))
    [held] = (state / "clients").iterdir()
    if kind == "open":
        held.chmod(0o755)
    else:
        held.rename(held.with_name("away"))
        held.write_text("")
    with pytest.raises(ConfigError, match=f"cannot be kept in .* set {STATE_VARIABLE}"):
        load_client(str(file))


@pytest.mark.parametrize(
    ("options", "role", "message"),
    [
        (("--topic", "t"), "publisher", "--topic is what a subscriber keeps"),
        (("--node", "h2:1"), "subscriber", "all have a name, or none has"),
        (("--node", "n0=h2:1"), "subscriber", "node_names: 'n0' is there twice"),
        (("--node", "n2=h2"), "subscriber", "nodes: 'h2' is not \"host:port\""),
        (("--topic", "a b"), "subscriber", "'a b'"),
        (("--cluster", "A B"), "subscriber", "cluster: "),
    ],
)
def test_a_wrong_enrolment_writes_nothing(
    options: tuple[str, ...], role: str, message: str, pki: str, tmp_path: Path
) -> None:
    found = enrol(pki, tmp_path / "x.toml", *options, role=role)
    assert found.exit_code == 2
    assert message in found.stderr
    assert not (tmp_path / "x.toml").exists()


def test_a_subscriber_has_topics_from_somewhere(file: Path) -> None:
    config = load_client(str(file))
    assert _chosen_topics(None, config).names == ("flights", "weather")
    assert _chosen_topics("x", config).names == ("x",)
    with pytest.raises(ValueError, match="topics is empty"):
        _chosen_topics(None, None)


def test_openssl_takes_what_is_held(file: Path) -> None:
    files = load_client(str(file)).tls
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
