"""Which client was tried with which feature, by the tests that are marked so.

`shown` collects the tests as pytest does, and reads their marks: a mark counts only on a test that
is run. Run as `python -m tests.kafka.compatibility`, this prints what it found.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.clients import CLIENTS
from tests.kafka.features import FEATURES

ROOT = Path(__file__).resolve().parent.parent.parent


class Collector:
    """A plugin that looks at what pytest would run."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: Any) -> None:
        """All tests that are left when those that are not to be run were taken out."""
        for item in session.items:
            for mark in item.iter_markers("shows"):
                client, *features = mark.args
                self.found.setdefault(client, set()).update(features)


@cache
def shown() -> dict[str, list[str]]:
    """Client -> features, of the tests in this directory. Raises ValueError for unknown ones."""
    command = [sys.executable, "-m", "tests.kafka.compatibility"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, list[str]] = json.loads(told.stdout.splitlines()[-1])
    unknown = {*found} - {*CLIENTS} | {f for fs in found.values() for f in fs} - {*FEATURES}
    if unknown:
        raise ValueError(f"marks name what the table has no place for: {sorted(unknown)}")
    return found


def wanted_versions() -> dict[str, str]:
    """The oldest versions of the Python clients that the tests install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needs = project["project"]["optional-dependencies"]["dev"]
    split = (need.partition(">=") for need in needs)
    return {name.partition("[")[0]: rest.partition(",")[0] for name, _, rest in split if rest}


def main() -> None:
    """Print what was found."""
    collector = Collector()
    directory = str(Path(__file__).parent)
    options = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*options, directory], plugins=[collector])
    found = {client: sorted(features) for client, features in collector.found.items()}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.exit(int(code))


if __name__ == "__main__":
    main()
