"""Configurations that the documentation shows are valid; systemd's units start what there is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from samelog.cli.main import main
from samelog.config.load import load_client, load_node

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"```toml\n(.*?)```", re.DOTALL)
NAMED_FILE = re.compile(r'^\w+ = "([\w.-]+\.(?:pem|key|json))"', re.MULTILINE)
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
EXAMPLES = [
    pytest.param(block, id=f"{page}-{number}")
    for page in ("configuration", "bare-metal")
    for number, block in enumerate(BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text()))
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_valid(text: str, tmp_path: Path) -> None:
    for name in NAMED_FILE.findall(text):
        (tmp_path / name).write_text("pem")
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "file.toml"
    path.write_text(text)
    load = load_node if "[node]" in text else load_client
    assert load(str(path), {}).cluster


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_start_what_there_is(unit: Path) -> None:
    lines = re.findall(r"^Exec(?:StartPre|Start)=(.*)$", unit.read_text(), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        program, *words = shlex.split(line.replace("$TOPICS", "--topic flights"))
        assert program == "/opt/samelog/bin/samelog"
        result = CliRunner().invoke(main, words)
        assert "can't read the configuration" in result.output, line  # so it was understood


def test_a_node_of_several_has_files_of_its_own_and_is_else_alike() -> None:
    one, several = (
        (ROOT / "deploy" / "systemd" / f"samelog-node{kind}.service").read_text().splitlines()
        for kind in ("", "@")
    )
    own = [line for line in several if "%i" in line]
    assert own == [
        "Description=samelog sequencer node %i",
        "ExecStartPre=/opt/samelog/bin/samelog config check /etc/samelog/nodes/%i.toml",
        "ExecStart=/opt/samelog/bin/samelog node --config /etc/samelog/nodes/%i.toml",
        "StateDirectory=samelog/%i",
    ]
    assert [
        line.replace("/nodes/%i.toml", "/node.toml").replace("/%i", "").replace(" %i", "")
        for line in several[1:]
    ] == one


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_understands_its_units() -> None:
    command = ["systemd-analyze", "verify", *map(str, UNITS)]
    output = subprocess.run(command, check=False, capture_output=True, text=True).stderr
    assert [line for line in output.splitlines() if "is not executable" not in line and line] == []
