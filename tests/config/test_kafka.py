"""The part of a node's configuration that is about Kafka clients."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samelog.config.load import load_node, with_kafka_settings
from samelog.config.schema.render import to_toml
from samelog.config.tables.kafka import (
    BrokerDefaults,
    GroupLimits,
    KafkaConfig,
    KafkaListener,
    Security,
)
from samelog.config.values import Address, ConfigError

NODE = """
[node]
name = "n0"
cluster = "demo"
data = "data"
listen = "0.0.0.0:7000"
[tls]
ca = "ca.pem"
cert = "node.pem"
key = "node.key"
[[peers]]
name = "n0"
address = "host:7000"
"""
INSIDE = '[[kafka.listeners]]\nname = "inside"\nlisten = "127.0.0.1:9092"\n'
OUTSIDE = (
    '[[kafka.listeners]]\nname = "outside"\nlisten = "0.0.0.0:9093"\n'
    'advertise = "kafka.example.com:9093"\nsecurity = "tls"\n'
)


def load(directory: Path, text: str) -> str:
    for name in ("ca.pem", "node.pem", "node.key"):
        (directory / name).write_text("pem")
    (directory / "node.key").chmod(0o600)
    path = directory / "node.toml"
    path.write_text(NODE + text)
    return str(path)


def test_listeners_are_read_and_rendered(tmp_path: Path) -> None:
    text = "[kafka]\nmax_request_bytes = '1Mi'\nidle_s = 5\n" + INSIDE + OUTSIDE
    config = load_node(load(tmp_path, text))
    inside, outside = config.kafka.listeners
    assert inside == KafkaListener(
        name="inside", listen=Address("127.0.0.1", 9092), advertise=Address("127.0.0.1", 9092)
    )
    assert outside.security is Security.TLS
    assert outside.advertise == Address("kafka.example.com", 9093)
    assert (config.kafka.max_request_bytes, config.kafka.idle_s) == (1 << 20, 5.0)
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_node(str(tmp_path / "again.toml")) == config


def test_groups_have_limits_under_kafkas_names(tmp_path: Path) -> None:
    text = '[kafka.groups]\n"group.max.size" = 5\n"group.initial.rebalance.delay.ms" = 0\n'
    config = load_node(load(tmp_path, text))
    groups = config.kafka.groups
    assert (groups.max_size, groups.initial_rebalance_delay_ms) == (5, 0)
    assert groups.min_session_timeout_ms == 6_000
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_node(str(tmp_path / "again.toml")) == config


@pytest.mark.parametrize(
    "line",
    ['"group.max.sise" = 5', '"group.max.size" = 0', '"group.min.session.timeout.ms" = 2000000'],
)
def test_senseless_limits_of_groups_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="group"):
        load_node(load(tmp_path, f"[kafka.groups]\n{line}\n"))


def test_broker_defaults_have_kafkas_names(tmp_path: Path) -> None:
    lines = (
        '"num.partitions" = 3\n"auto.create.topics.enable" = false\n"message.max.bytes" = "64Ki"\n'
    )
    config = load_node(load(tmp_path, "[kafka]\n" + lines))
    given = BrokerDefaults(num_partitions=3, auto_create=False, message_max_bytes=65536)
    assert config.kafka.defaults == given
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_node(str(tmp_path / "again.toml")) == config
    assert load_node(load(tmp_path, "")).kafka.defaults == BrokerDefaults()


def test_settings_are_taken_one_by_one() -> None:
    before = KafkaConfig(groups=GroupLimits(initial_rebalance_delay_ms=0), idle_s=5)
    texts = ["num.partitions=3", "message.max.bytes=64Ki", "group.max.size=7"]
    after = with_kafka_settings(before, texts, "--set")
    assert after.defaults == BrokerDefaults(num_partitions=3, message_max_bytes=65536)
    assert after.groups == GroupLimits(initial_rebalance_delay_ms=0, max_size=7)
    assert with_kafka_settings(before, [], "--set") == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num.partitions", "'num.partitions' is not NAME=VALUE"),
        ("num.partitons=3", "did you mean 'num.partitions'"),
        ("num.partitions=0", "--set: num.partitions: 0 is not a whole number from 1"),
        ("num.partitions=three", "'three' is not a whole number"),
        ("message.max.bytes=5", "5 is not a size"),
        ("auto.create.topics.enable=1", "1 is not true or false"),
    ],
)
def test_senseless_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        with_kafka_settings(KafkaConfig(), [text], "--set")


def test_without_the_table_nothing_listens(tmp_path: Path) -> None:
    assert load_node(load(tmp_path, "")).kafka.listeners == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "example.com", "[::]"])
def test_plaintext_beyond_this_host_must_be_said(tmp_path: Path, host: str) -> None:
    text = INSIDE.replace("127.0.0.1", host) + 'advertise = "a:1"\n'
    with pytest.raises(ConfigError, match="not a loopback address, and nothing protects"):
        load_node(load(tmp_path, text))
    config = load_node(load(tmp_path, text + "allow_plaintext_from_anywhere = true\n"))
    assert config.kafka.listeners[0].allow_plaintext_from_anywhere


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_plaintext_on_loopback_is_fine(tmp_path: Path, host: str) -> None:
    assert load_node(load(tmp_path, INSIDE.replace("127.0.0.1", host))).kafka.listeners


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INSIDE + INSIDE, "'inside' is there twice"),
        (INSIDE + OUTSIDE.replace("0.0.0.0:9093", "127.0.0.1:9092"), "is there twice"),
        (OUTSIDE.replace("kafka.example.com", "0.0.0.0"), "clients cannot connect to 0.0.0.0"),
        (OUTSIDE.replace('advertise = "kafka.example.com:9093"\n', ""), "clients cannot connect"),
        (INSIDE.replace("name", "nam"), "did you mean 'name'"),
        (INSIDE + 'security = "ssl"\n', "'ssl' is not"),
        ("[kafka]\nmax_request_bytes = 5\n", "5 is not a size"),
        ('[kafka]\nmax_memory_bytes = "15Mi"\n', "15728640 is not a size from 16777216"),
        ("[kafka]\nmax_connections = 0\n", "0 is not a whole number"),
    ],
)
def test_mistakes_are_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_node(load(tmp_path, text))


USER = '[[kafka.users]]\nname = "ann"\npassword_file = "password"\n'
SASL = OUTSIDE.replace('"tls"', '"sasl_tls"')


def test_users_and_a_listeners_own_certificate(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("right")
    (tmp_path / "password").chmod(0o600)
    own = '[kafka.listeners.tls]\nca = "ca.pem"\ncert = "node.pem"\nkey = "node.key"\n'
    config = load_node(load(tmp_path, SASL + own + USER))
    (user,) = config.kafka.users
    assert (user.name, user.password_file) == ("ann", str(tmp_path / "password"))
    assert config.kafka.listeners[0].tls == config.tls
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_node(str(tmp_path / "again.toml")) == config


def test_passwords_are_nobody_elses_and_listeners_need_users(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="and there is nobody"):
        load_node(load(tmp_path, SASL))
    (tmp_path / "password").write_text("right")
    (tmp_path / "password").chmod(0o644)
    with pytest.raises(ConfigError, match="can be used by others"):
        load_node(load(tmp_path, SASL + USER))


OAUTH = '[kafka.oauth]\njwks = "{}"\nissuer = "https://login.example.com/"\naudience = "here"\n'


def test_an_issuer_of_tokens_lets_users_in(tmp_path: Path) -> None:
    for jwks, found in (
        ("jwks.json", str(tmp_path / "jwks.json")),
        ("https://login.example.com/keys", "https://login.example.com/keys"),
    ):
        config = load_node(load(tmp_path, SASL + OAUTH.format(jwks)))
        assert config.kafka.oauth is not None
        assert (config.kafka.oauth.jwks, config.kafka.oauth.claim) == (found, "sub")
        (tmp_path / "again.toml").write_text(to_toml(config))
        assert load_node(str(tmp_path / "again.toml")) == config


@pytest.mark.parametrize("url", ["http://login.example.com/keys", "https://me:it@example.com/keys"])
def test_keys_come_over_tls_and_without_a_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.oauth\.jwks"):
        load_node(load(tmp_path, SASL + OAUTH.format(url)))
