"""Where nodes and sidecars answer HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from samelog.config.load import load_client, load_node
from samelog.config.schema.render import to_toml
from samelog.config.tables.shared import HttpConfig, HttpSecurity, TlsFiles
from samelog.config.values import Address, ConfigError
from tests.config.test_kafka import load

CLIENT = """
nodes = ["host:7000"]
cluster = "demo"
ca = "ca.pem"
cert = "node.pem"
key = "node.key"
"""


def test_a_node_answers_only_if_it_says_so_and_on_loopback(tmp_path: Path) -> None:
    assert load_node(load(tmp_path, "")).http is None
    assert load_node(load(tmp_path, "[http]\n")).http == HttpConfig(
        listen=Address("127.0.0.1", 7080)
    )


def test_what_is_read_is_rendered(tmp_path: Path) -> None:
    text = '[http]\nlisten = "0.0.0.0:9643"\nsecurity = "mtls"\n'
    text += '[http.tls]\nca = "ca.pem"\ncert = "node.pem"\nkey = "node.key"\n'
    config = load_node(load(tmp_path, text))
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "node.pem", "node.key"))
    tls = TlsFiles(ca=ca, cert=cert, key=key)
    listen = Address("0.0.0.0", 9643)
    assert config.http == HttpConfig(listen=listen, security=HttpSecurity.MTLS, tls=tls)
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_node(str(tmp_path / "again.toml")) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('listen = "0.0.0.0:7080"', r"http\.security: 0\.0\.0\.0:7080 is not a loopback address"),
        ('listen = "here"', r"http\.listen: 'here' is not \"host:port\""),
        ('security = "tls"', r'http\.security: .tls. is not "plaintext" or "mtls"'),
        ("port = 1", r"http\.port: unknown key"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_node(load(tmp_path, f"[http]\n{text}\n"))


def test_sidecars_have_places_of_their_own(tmp_path: Path) -> None:
    load(tmp_path, "")
    path = tmp_path / "client.toml"
    path.write_text(CLIENT + '[publisher.http]\n[subscriber.http]\nlisten = "[::1]:7081"\n')
    config = load_client(str(path))
    assert config.publisher.http == HttpConfig()
    assert config.subscriber.http == HttpConfig(listen=Address("::1", 7081))
    path.write_text(to_toml(config))
    assert load_client(str(path)) == config
    bare = replace(config, publisher=replace(config.publisher, http=None))
    path.write_text(to_toml(bare))
    assert load_client(str(path)) == bare
