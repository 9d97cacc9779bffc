"""`samelog pki`, as an operator uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from samelog.cli.main import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pki", *arguments])


def run_json(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_from_nothing_to_a_listed_certificate(tmp_path: Path) -> None:
    pki = str(tmp_path / "pki")
    assert run_json("init", "--dir", pki, "--name", "demo") == {
        "cert": f"{pki}/ca.pem",
        "key": f"{pki}/ca.key",
    }
    issued = run_json("issue", "node", "n0", "--dir", pki, "--host", "a.b", "--host", "::1")
    shown = run_json("show", issued["cert"])
    assert shown["identity"] == "samelog://node/n0"
    assert shown["names"] == ["a.b", "::1"]
    assert shown["authority"] is False
    assert run_json("list", "--dir", pki)[1] == {**shown, "revoked": False}


def test_humans_see_a_table_and_talk_on_stderr(tmp_path: Path) -> None:
    pki = str(tmp_path / "pki")
    result = run("init", "--dir", pki)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert f"wrote {pki}/ca.pem and {pki}/ca.key" in result.stderr
    run("issue", "admin", "root", "--dir", pki)
    listed = run("list", "--dir", pki).stdout
    assert "samelog://admin/root" in listed
    assert "(authority)" in listed
    assert "samelog://admin/root" in run("show", f"{pki}/admin-root.pem").stdout


def test_what_can_not_be_done_says_why(tmp_path: Path) -> None:
    pki = str(tmp_path / "pki")
    result = run("issue", "node", "n0", "--dir", pki)
    assert result.exit_code == 1
    assert result.stderr == f"samelog: {pki}: no authority here: run `samelog pki init` first\n"
    run("init", "--dir", pki)
    assert run("init", "--dir", pki).exit_code == 1
    assert run("issue", "node", "UPPER", "--dir", pki).exit_code == 2
    assert run("issue", "king", "n0", "--dir", pki).exit_code == 2
    assert run("issue", "node", "n0", "--dir", pki, "--days", "0").exit_code == 2


def test_every_help_text_has_an_example() -> None:
    for name in ("init", "issue", "list", "show"):
        result = run(name, "--help")
        assert result.exit_code == 0
        assert f"samelog pki {name}" in result.stdout
