"""`samelog` commands against a real cluster, as a user types them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests import forking
from tests.patience import PATIENCE_S

TIMEOUT_S = PATIENCE_S + 30


def samelog(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command."""
    return forking.run(arguments, stdin=stdin, timeout=TIMEOUT_S)


def as_json(*arguments: str, stdin: str = "") -> Any:
    """Run one command with --json, which has to succeed; its output."""
    ended = samelog(*arguments, "--json", stdin=stdin)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
