"""`samelog config`: checking and showing configuration files."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from samelog.cli import config_contents
from samelog.cli.main import main
from samelog.config.pki.authority import CertificateRole, IssuedFiles, create_authority, issue
from tests.config.test_http import CLIENT
from tests.config.test_kafka import load


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments])


@pytest.fixture
def pki(tmp_path: Path) -> str:
    """An authority's directory."""
    directory = str(tmp_path / "pki")
    create_authority(directory, "demo")
    return directory


def put(directory: Path, pki: str, files: IssuedFiles) -> None:
    """Into the files that `load` and CLIENT name."""
    for source, name in (
        (Path(pki) / "ca.pem", "ca.pem"),
        (files.cert, "node.pem"),
        (files.key, "node.key"),
    ):
        shutil.copy2(source, directory / name)


def test_a_valid_file_is_said_to_be(
    tmp_path: Path, pki: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMELOG_NODE_FSYNC", "interval")
    path = load(tmp_path, "")
    put(tmp_path, pki, issue(pki, CertificateRole.NODE, "n0", hosts=("localhost",)))
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


@pytest.mark.parametrize(
    ("role", "name", "message"),
    [
        (CertificateRole.PUBLISHER, "n0", "is not for serverAuth"),
        (CertificateRole.NODE, "other", "is of samelog://node/other, not of samelog://node/n0"),
    ],
)
def test_a_node_has_a_certificate_of_its_own(
    tmp_path: Path, pki: str, role: CertificateRole, name: str, message: str
) -> None:
    path = load(tmp_path, "")
    put(tmp_path, pki, issue(pki, role, name))
    result = run("check", path)
    assert result.exit_code == 2
    assert message in result.stderr


def test_key_and_certificate_belong_together(tmp_path: Path, pki: str) -> None:
    path = load(tmp_path, "")
    (tmp_path / "client.toml").write_text(CLIENT)
    files = issue(pki, CertificateRole.NODE, "n0", hosts=("localhost",))
    put(tmp_path, pki, files)
    shutil.copy2(issue(pki, CertificateRole.ADMIN, "a").key, tmp_path / "node.key")
    for each in (path, str(tmp_path / "client.toml")):
        result = run("check", each)
        assert (result.exit_code, "KEY_VALUES_MISMATCH" in result.stderr) == (2, True)
    shutil.copy2(files.key, tmp_path / "node.pem")
    for each in (path, str(tmp_path / "client.toml")):
        result = run("check", each)
        assert (result.exit_code, "cannot be used" in result.stderr) == (2, True)


def test_a_certificate_counts_now(
    tmp_path: Path, pki: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.toml").write_text(CLIENT)
    put(tmp_path, pki, issue(pki, CertificateRole.CLIENT, "c", days=10))
    assert run("check", str(tmp_path / "client.toml")).exit_code == 0
    for days, message in ((11, "expired on"), (-5, "counts from")):
        then = datetime.now(UTC) + timedelta(days=days)

        class Clock(datetime):
            @classmethod
            def now(cls, tz: object = None, *, then: datetime = then) -> datetime:  # type: ignore[override]
                return then

        monkeypatch.setattr(config_contents, "datetime", Clock)
        result = run("check", str(tmp_path / "client.toml"))
        assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_pipe_is_no_configuration_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.toml")
    result = run("check", str(tmp_path / "fifo.toml"))
    assert result.exit_code == 2
    assert "not a regular file" in result.stderr


MIRROR = """
name = "eu"
dir = "session"
destination = "client.toml"
topics = ["ticks*"]
"""


def test_a_mirror_is_checked_with_the_files_of_both_clusters(tmp_path: Path, pki: str) -> None:
    put(tmp_path, pki, issue(pki, CertificateRole.CLIENT, "m"))
    (tmp_path / "client.toml").write_text(CLIENT)
    file = tmp_path / "mirror.toml"
    file.write_text(MIRROR + 'source = "client.toml"\n')
    valid = run("check", str(file), "--json")
    assert valid.exit_code == 0, valid.output
    assert json.loads(valid.stdout)["kind"] == "mirror"
    found = {
        each["key"]: each["value"] for each in json.loads(run("show", str(file), "--json").stdout)
    }
    assert found["topics"] == ["ticks*"]
    for wrong, message in (
        ('source = "nothing.toml"\n', "nothing.toml: can't read"),
        ("", "source: name one source"),
        ('source = "client.toml"\nsurce = 1\n', "surce: unknown key; did you mean 'source'?"),
        ('[kafka]\nbootstrap = ["b:9092"]\nca = "nothing.pem"\n', "[kafka]: "),
    ):
        file.write_text(MIRROR + wrong)
        refused = run("check", str(file))
        assert refused.exit_code == 2
        assert message in refused.stderr
    (tmp_path / "client.toml").write_text(CLIENT.replace("node.pem", "gone.pem"))
    file.write_text(MIRROR + 'source = "client.toml"\n')
    assert "gone.pem" in run("check", str(file)).stderr
