"""Configuration files: what is accepted, and what an operator reads when it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from samelog.config.load import load_client, load_node
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import OnFull, PublisherConfig
from samelog.config.tables.node import NODE_FILE, Fsync, Grant
from samelog.config.values import Address, ConfigError, parse_address, parse_size

TLS = 'ca = "ca.pem"\ncert = "node.pem"\nkey = "node.key"\n'
PEERS = "".join(
    f'[[peers]]\nname = "n{number}"\naddress = "host{number}:7000"\n' for number in range(3)
)
NODE = f"""
[node]
name = "n0"
cluster = "demo"
data = "data"
listen = "0.0.0.0:7000"
[tls]
{TLS}
{PEERS}
"""
CLIENT = f'nodes = ["a:1", "[::1]:2"]\ncluster = "demo"\n{TLS}'

Writer = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write a configuration beside certificate files; gives its path."""
    for name in ("ca.pem", "node.pem", "node.key"):
        (tmp_path / name).write_text("pem")
    (tmp_path / "node.key").chmod(0o600)

    def write_file(text: str) -> str:
        path = tmp_path / "file.toml"
        path.write_text(text)
        return str(path)

    return write_file


def test_a_small_node_file_has_defaults_and_absolute_paths(write: Writer, tmp_path: Path) -> None:
    config = load_node(write(NODE))
    assert config.data == str(tmp_path / "data")
    assert config.tls.key == str(tmp_path / "node.key")
    assert config.listen == Address("0.0.0.0", 7000)
    assert config.advertise == Address("host0", 7000)
    assert [peer.name for peer in config.peers] == ["n0", "n1", "n2"]
    assert config.fsync is Fsync.ALWAYS
    assert config.grants == ()


def test_grants_are_read(write: Writer) -> None:
    text = """
[[grants]]
identity = "samelog://publisher/ewr"
publish = { sessions = ["ewr"], topics = ["flights*"], dedup_ids = ["twin"] }
subscribe = { topics = ["*"] }
[[grants]]
identity = "dns:ops.example.com"
admin = true
"""
    first, second = load_node(write(NODE + text)).grants
    assert first == Grant(
        identity="samelog://publisher/ewr",
        publish_sessions=("ewr",),
        publish_topics=("flights*",),
        publish_dedup_ids=("twin",),
        subscribe_topics=("*",),
    )
    assert second.admin
    assert second.publish_sessions == ()


def test_a_client_file_is_read(write: Writer, tmp_path: Path) -> None:
    text = 'node_names = ["n0", "n1"]\n[publisher]\ndir = "out"\nbudget_bytes = "10G"\n'
    config = load_client(write(CLIENT + text + 'on_full = "raise"\n[subscriber]\ndir = "in"\n'))
    assert config.nodes == (Address("a", 1), Address("::1", 2))
    assert config.node_names == ("n0", "n1")
    assert config.publisher == PublisherConfig(
        directory=str(tmp_path / "out"), budget_bytes=10**10, on_full=OnFull.RAISE
    )
    assert config.subscriber.directory == str(tmp_path / "in")


def test_rendered_files_load_as_the_same_values(write: Writer) -> None:
    grants = '[[grants]]\nidentity = "samelog://client/*"\nadmin = true\n'
    grants += 'subscribe = { topics = ["a*"] }\n'
    interval = NODE.replace("[tls]", 'fsync = "interval"\nfsync_interval_ms = 20\n[tls]')
    node = load_node(write(interval + grants))
    assert load_node(write(to_toml(node))) == node
    client = load_client(
        write(CLIENT + 'node_names = ["x", "y"]\n[publisher]\ndir = "a b\\u007f\\"é"')
    )
    assert load_client(write(to_toml(client))) == client


def change(old: str, new: str) -> str:
    """The node file with one thing changed."""
    if old not in NODE:
        raise ValueError(f"{old!r} is not in the file")
    return NODE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (change('data = "data"', ""), "node.data: missing; it must be a text"),
        (change('"n0"\ncluster', '"n9"\ncluster'), "'n9' is not among the peers, so it joins"),
        (change("data =", "dta ="), "node.dta: unknown key; did you mean 'data'?"),
        (change("[tls]", "[tsl]"), "tsl: unknown key; did you mean 'tls'?"),
        (change('"data"', "7"), "node.data: 7 is not a text"),
        (change('"demo"', '"a/b"'), "node.cluster: 'a/b' is not a valid name"),
        (change("0.0.0.0:7000", "0.0.0.0"), "node.listen: '0.0.0.0' is not \"host:port\""),
        (change("host1:7000", "host1:0"), "peers[1].address: 'host1:0' is not"),
        (change("host1:7000", "host0:7000"), "peers: 'host0:7000' is there twice"),
        (change('"n1"', '"n0"'), "peers: 'n0' is there twice"),
        (change("ca.pem", "no.pem"), "no.pem' is not an existing file"),
        (change("[tls]", 'fsync = "allways"\n[tls]'), "; did you mean 'always'?"),
        (change("[tls]", "fsync_interval_ms = 5\n[tls]"), 'no meaning without fsync = "interval"'),
        (change("[tls]", "segment_bytes = true\n[tls]"), "node.segment_bytes: True is not a size"),
        (change("[tls]", 'segment_bytes = "3Gi"\n[tls]'), "'3Gi' is not a size from 1024 to"),
        (change("[tls]", "disk_stop_percent = 101\n[tls]"), "101 is not a whole number from 1"),
        (change("[tls]", "snapshot_interval_s = nan\n[tls]"), "nan is not a number of seconds"),
        (change("[tls]", 'auto_create_topics = "no"\n[tls]'), "'no' is not true or false"),
        (
            change("[tls]", 'data = "twice"\n[tls]'),
            "not valid TOML: Cannot overwrite a value (at line",
        ),
        (change("[[peers]]", "[peers]"), "not valid TOML"),
        (NODE + "[[grants]]\nadmin = true\n", "grants[0].identity: missing"),
        (NODE + '[[grants]]\nidentity = "ewr"\n', "'ewr' is not \"samelog://<role>/<name>\""),
        (
            NODE + '[[grants]]\nidentity = "dns:a"\npublish = { topics = ["*"] }\n',
            "grants[0].publish: needs both sessions and topics",
        ),
        (
            NODE + '[[grants]]\nidentity = "dns:a"\nsubscribe = { topics = ["*x"] }\n',
            "grants[0].subscribe.topics: '*x' has a * that is not its last character",
        ),
    ],
)
def test_a_bad_node_file_says_where_and_what(write: Writer, text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        load_node(path)
    assert str(caught.value).startswith(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLIENT.replace('"a:1", "[::1]:2"', ""), "nodes: must name at least one node"),
        (CLIENT.replace('"[::1]:2"', '"a:1"'), "nodes: 'a:1' is there twice"),
        (CLIENT.replace('"[::1]:2"', '"::1:2"'), "nodes: '::1:2' is not \"host:port\""),
        (CLIENT.replace('"[::1]:2"', "3"), "nodes: 3 is not a text"),
        (CLIENT + 'node_names = ["one"]', "node_names: 1 names for 2 nodes"),
        (CLIENT + 'node_names = ["A", "b"]', "node_names: 'A' is not a valid name"),
        (CLIENT + '[publisher]\nbudget_bytes = "1M"\n', "is less than roll_bytes"),
        (CLIENT + '[publisher]\non_full = "drop"\n', '\'drop\' is not "block" or "raise"'),
        (CLIENT + "publisher = 3", "publisher: 3 is not a table"),
    ],
)
def test_a_bad_client_file_says_where_and_what(write: Writer, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_client(write(text))


ODD_VALUES = (
    *("0", "-1", "1e400", "nan", "99999999999999999999", "true", "1979-05-27"),
    *('""', '"x"', '"\\u0000"', "[]", "[0]", '[""]', "[[]]", "{}", "{ x = 1 }", "[{}]"),
)


SPECS = NODE_FILE.tables
EVERY_KEY = """
advertise = "a:1"
fsync = "interval"
fsync_interval_ms = 5
segment_bytes = "1Gi"
auto_create_topics = true
max_record_bytes = 1000
recovery_bytes_per_s = "100Mi"
snapshot_interval_s = 0.5
site = "lon"
host = "machine-1"
members_on_host = 2
raft_dir = "raft-disk"
disk_stop_percent = 90
[quotas]
sessions = 5
partitions = 6
unmerged_bytes = "1Gi"
[tls]"""
GRANT = """
[[grants]]
identity = "dns:a"
publish = { sessions = ["a"], topics = ["b"], dedup_ids = ["c"] }
subscribe = { topics = ["d"] }
admin = true
"""


@pytest.mark.parametrize("value", ODD_VALUES)
def test_any_value_of_any_key_is_taken_or_refused(write: Writer, value: str) -> None:
    """Nothing but ConfigError ever comes of what stands in a file."""
    text = change("\n[tls]", EVERY_KEY) + GRANT
    load_node(write(text))
    found = list(re.finditer(r"^\w+ = (.*)$", text, re.MULTILINE))
    assert len(found) == len(SPECS["node"].keys) + len(SPECS["quotas"].keys) + 3 + 6 + 4
    for match in found:
        with suppress(ConfigError):
            load_node(write(text[: match.start(1)] + value + text[match.end(1) :]))


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_a_key_that_others_can_use_is_refused(write: Writer, tmp_path: Path, mode: int) -> None:
    (tmp_path / "node.key").chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        load_node(write(NODE))


def test_a_mark_before_a_configuration_is_no_part_of_it(write: Writer, tmp_path: Path) -> None:
    path = Path(write(NODE))
    wanted = load_node(str(path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_node(str(path)) == wanted
    path.write_bytes(b"# caf\xe9\n" + NODE.encode())
    with pytest.raises(ConfigError, match="byte 0xe9 at 5 is not UTF-8; convert the file with ico"):
        load_node(str(path))


def test_files_that_are_not_toml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: can't read .*: No such file"):
        load_node(str(tmp_path / "missing.toml"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_client(str(tmp_path / "binary"))
    with open(tmp_path / "huge", "wb") as file:
        os.truncate(file.fileno(), 2 << 20)
    with pytest.raises(ConfigError, match="not a configuration file"):
        load_client(str(tmp_path / "huge"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12", 12), ("4k", 4000), ("4Ki", 4096), ("2 Mi", 2 << 20), ("1G", 10**9)]
    + [(text, None) for text in ("", "-1", "1.5M", "1KiB", "Mi", "1m", "٣")],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["a:1", "10.0.0.1:65535", "[fe80::1]:7000"])
def test_addresses_keep_their_text(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "a", ":1", "a:", "a:0", "a:65536", "a:-1", "[]:1", "::1:2"])
def test_what_is_no_address(text: str) -> None:
    assert parse_address(text) is None
