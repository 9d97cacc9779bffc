"""A subscriber sidecar copies topics by their names; a pattern is refused with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from samelog.cli.main import main
from samelog.config.load import load_client
from samelog.config.values import ConfigError
from tests.runtime.pki import Authority

REMEDY = "A sidecar takes no patterns: give each topic by its name, as `samelog topic list` prints"


def client_file(directory: Path, topic: str) -> str:
    files = Authority(directory / "pki").publisher("p")
    path = directory / "client.toml"
    text = "".join(f"{name} = '{getattr(files, name)}'\n" for name in ("ca", "cert", "key"))
    text += f"cluster = 'c'\nnodes = ['127.0.0.1:1']\n[subscriber]\ntopics = ['{topic}']\n"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("pattern", ["fl*", "*", "re:fl[0-9]+"])
def test_a_pattern_is_refused_on_the_command_line_and_in_the_configuration(
    tmp_path: Path, pattern: str
) -> None:
    config = client_file(tmp_path, "flights")
    command = ["sidecar", "subscriber", "--config", config, "--dir", str(tmp_path / "copies")]
    ended = CliRunner().invoke(main, [*command, "--topic", pattern])
    assert ended.exit_code != 0
    assert REMEDY in ended.stderr, ended.output
    assert not (tmp_path / "copies").exists()
    with pytest.raises(ConfigError, match=r"topics: .*A sidecar takes no patterns"):
        load_client(client_file(tmp_path, pattern))
