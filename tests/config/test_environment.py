"""What the environment says instead of a configuration file, and where values come from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from samelog.config.document import ConfigDocument, ConfigText, parse_toml, read_file, settings
from samelog.config.load import load_client, load_node, node_config, read_node
from samelog.config.schema.environment import key_paths, variable, variable_names
from samelog.config.schema.keys import ConfigKey, TableSpec
from samelog.config.schema.kinds import TEXT
from samelog.config.schema.render import json_schema, to_toml
from samelog.config.tables.client import CLIENT_FILE
from samelog.config.tables.node import NODE_FILE, Fsync
from samelog.config.values import Address, ConfigError
from tests.config.test_http import CLIENT as CLIENT_TEXT
from tests.config.test_kafka import INSIDE, OUTSIDE, load

GRANT = '[[grants]]\nidentity = "dns:a"\n'


def test_a_variable_counts_instead_of_the_file(tmp_path: Path) -> None:
    environ = {
        "SAMELOG_NODE_FSYNC": "interval",
        "SAMELOG_NODE_FSYNC_INTERVAL_MS": "7",
        "SAMELOG_NODE_AUTO_CREATE_TOPICS": "false",
        "SAMELOG_NODE_SEGMENT_BYTES": "64Mi",
        "SAMELOG_NODE_SNAPSHOT_INTERVAL_S": "0.5",
        "SAMELOG_KAFKA_NUM_PARTITIONS": "3",
        "SAMELOG_KAFKA_GROUPS_GROUP_MAX_SIZE": "8",
        "SAMELOG_KAFKA_LISTENERS_1_ADVERTISE": "there:9093",
        "SAMELOG_GRANTS_0_SUBSCRIBE_TOPICS": "a, b*",
        "SAMELOG_HTTP_LISTEN": "127.0.0.1:1",
        "PATH": "/bin",
    }
    config = load_node(load(tmp_path, INSIDE + OUTSIDE + GRANT), environ)
    assert (config.fsync, config.fsync_interval_ms) == (Fsync.INTERVAL, 7)
    assert not config.auto_create_topics
    assert (config.segment_bytes, config.pace.snapshot_interval_s) == (64 << 20, 0.5)
    assert (config.kafka.defaults.num_partitions, config.kafka.groups.max_size) == (3, 8)
    assert config.kafka.listeners[1].advertise == Address("there", 9093)
    assert config.grants[0].subscribe_topics == ("a", "b*")
    assert config.http is not None
    assert config.http.listen == Address("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SAMELOG_NODE_FSNYC": "always"}, "names no key; did you mean 'SAMELOG_NODE_FSYNC'"),
        ({"SAMELOG_XYZZY": "1"}, "environment variable SAMELOG_XYZZY names no key"),
        (
            {"SAMELOG_NODE_FSYNC": "alway"},
            r"node\.fsync \(from SAMELOG_NODE_FSYNC\): 'alway' is not",
        ),
        ({"SAMELOG_QUOTAS_SESSIONS": "many"}, "'many' is not a whole number from 1 to 1000000"),
        ({"SAMELOG_QUOTAS_SESSIONS": "1.5"}, "1.5 is not a whole number"),
        ({"SAMELOG_NODE_AUTO_CREATE_TOPICS": "yes"}, "'yes' is not true or false"),
        ({"SAMELOG_NODE_NAME": ""}, "'' is not a text of at least one character"),
        ({"SAMELOG_GRANTS_0_ADMIN": "true"}, "the file has no such table: variables change those"),
        ({"SAMELOG_TLS_KEY": "nowhere"}, r"tls\.key \(from SAMELOG_TLS_KEY\): .* existing file"),
    ],
)
def test_mistakes_name_the_variable(
    tmp_path: Path, environ: Mapping[str, str], message: str
) -> None:
    path = load(tmp_path, "")
    with pytest.raises(ConfigError, match=message) as caught:
        load_node(path, environ)
    assert str(caught.value).startswith(path)


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    environ = {
        "SAMELOG_CONFIG": "client.toml",
        "SAMELOG_CLIENT_SERVICE_HOST": "10.0.0.1",
        "SAMELOG_CLIENT_PORT_7000_TCP_ADDR": "10.0.0.1",
        "SAMELOG_NODES": "a:1",
        "SAMELOG_PUBLISHER_DIR": "out",
    }
    assert load_node(load(tmp_path, ""), environ).name == "n0"
    (tmp_path / "client.toml").write_text(CLIENT_TEXT)
    client = load_client(str(tmp_path / "client.toml"), environ | {"SAMELOG_NODE_NAME": "x"})
    assert client.nodes == (Address("a", 1),)
    assert client.publisher.directory == str(tmp_path / "out")


def test_each_setting_says_where_it_is_from(tmp_path: Path) -> None:
    path = load(tmp_path, INSIDE)
    found = {
        each.name: each for each in settings(read_node(path, {"SAMELOG_NODE_FSYNC": "always"}))
    }
    assert (found["node.fsync"].value, found["node.fsync"].source) == (
        "always",
        "SAMELOG_NODE_FSYNC",
    )
    assert (found["node.name"].value, found["node.name"].source) == ("n0", path)
    assert (found["quotas.sessions"].value, found["quotas.sessions"].source) == (
        20_000,
        "default",
    )
    assert found["kafka.listeners[0].advertise"].value is None
    assert "kafka.listeners[1].name" not in found


def test_a_file_without_anything_has_the_defaults_of_the_values(tmp_path: Path) -> None:
    """What is rendered from a bare file, whose values are defaults, says what the table says."""
    config = load_node(load(tmp_path, ""), {})
    path = tmp_path / "again.toml"
    path.write_text(to_toml(config))
    found = {each.name: each.value for each in settings(read_node(str(path), {}))}
    bare = {each.name: each.value for each in settings(read_node(load(tmp_path, ""), {}))}
    own = {"node.data", "node.advertise", "tls.ca", "tls.cert", "tls.key", "http.listen"}
    assert {name: found[name] for name in bare if name not in own} == {
        name: value for name, value in bare.items() if name not in own
    }


def odd(key: ConfigKey) -> st.SearchStrategy[Any]:
    """Texts that a variable may hold."""
    choices = key.kind.json_schema.get("enum", [])
    known = [str(key.file_default), *choices, "1", "0", "true", "a:1", "64Mi", "a,b", ","]
    return st.one_of(st.sampled_from(known), st.text(max_size=8).filter(lambda x: "\0" not in x))


@given(st.data())
def test_any_text_of_any_variable_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.getbasetemp() / "odd"
    directory.mkdir(exist_ok=True)
    path = load(directory, INSIDE + GRANT)
    place = data.draw(st.sampled_from(list(key_paths(NODE_FILE, toml_of(path)))))
    with suppress(ConfigError):
        load_node(path, {variable(place.name): data.draw(odd(place.key))})


def test_the_schemas_are_schemas_and_take_what_the_loader_takes(tmp_path: Path) -> None:
    node = json_schema(NODE_FILE, "node")
    client = json_schema(CLIENT_FILE, "client")
    for each in (node, client):
        Draft202012Validator.check_schema(each)
    path = load(tmp_path, INSIDE + OUTSIDE + GRANT)
    again = tmp_path / "again.toml"
    again.write_text(to_toml(load_node(path, {})))
    Draft202012Validator(node).validate(toml_of(str(again)))
    (tmp_path / "client.toml").write_text(
        CLIENT_TEXT + '[publisher.kafka]\nlisten = "127.0.0.1:1"\nsession = "s"\n'
        "[publisher.kafka.partitions]\nflights = 3\n"
    )
    again.write_text(to_toml(load_client(str(tmp_path / "client.toml"), {})))
    Draft202012Validator(client).validate(toml_of(str(again)))


def test_the_schema_refuses_what_the_loader_refuses(tmp_path: Path) -> None:
    checker = Draft202012Validator(json_schema(NODE_FILE, "node"))
    for text in ("[node]\nfsnyc = 1", "[quotas]\nsessions = 0", "[kafka]\nidle_s = 'x'"):
        values = {**toml_of(load(tmp_path, "")), **_toml(text)}
        assert not checker.is_valid(values)
        with pytest.raises(ConfigError):
            node_config(ConfigDocument(ConfigText("f", b""), NODE_FILE, values))


def toml_of(path: str) -> dict[str, Any]:
    return parse_toml(read_file(path))


def _toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


def test_names_of_variables() -> None:
    spec = TableSpec("", "")
    inside = spec.inside("a", "", is_many=True).inside("b", "")
    inside.keys["c.d"] = ConfigKey("", TEXT)
    assert variable_names(spec) == {"a[].b.c.d": "SAMELOG_A_N_B_C_D"}
    assert variable("a[10].b.c.d") == "SAMELOG_A_10_B_C_D"
