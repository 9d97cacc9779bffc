"""`samelog config`: checking and showing configuration files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samelog.cli.main import main
from tests.config.test_http import CLIENT
from tests.config.test_kafka import load


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments])


def test_a_valid_file_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMELOG_NODE_FSYNC", "interval")
    path = load(tmp_path, "")
    result = run("check", path)
    assert result.exit_code == 0
    assert "valid, of a node" in result.stderr
    assert "node.fsync is from SAMELOG_NODE_FSYNC" in result.stderr
    (tmp_path / "client.toml").write_text(CLIENT)
    result = run("check", str(tmp_path / "client.toml"), "--json")
    assert json.loads(result.stdout)["kind"] == "client"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[quotas]\nsesions = 5\n", "quotas.sesions: unknown key; did you mean 'sessions'?"),
        ("[log]\nlevel = 'loud'\n", 'log.level: \'loud\' is not "debug" or "info"'),
    ],
)
def test_a_bad_file_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    result = run("check", load(tmp_path, text))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_every_key_is_shown_with_where_it_is_from(tmp_path: Path) -> None:
    path = load(tmp_path, "[quotas]\nsessions = 5\n")
    found = {each["key"]: each for each in json.loads(run("show", path, "--json").stdout)}
    assert found["quotas.sessions"] == {
        "key": "quotas.sessions",
        "value": 5,
        "from": path,
        "reloaded": "at once",
    }
    assert found["quotas.partitions"]["from"] == "default"
    lines = run("show", path).stdout.splitlines()
    assert any(line.split() == ["quotas.sessions", "5", path] for line in lines)


def test_the_schema_is_printed() -> None:
    found = json.loads(run("schema", "client").stdout)
    assert found["required"] == ["nodes", "cluster"]
