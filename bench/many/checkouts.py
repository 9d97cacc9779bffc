"""Runs a row on a checkout of samelog in a process of its own: this tree, or another one whose
product is measured by this tree's benchmarks.

Invariants: a run ends in bounded time, and none of its processes and files outlive it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.many.rows import BEFORE, PRESENT
from bench.rounds.run import PRODUCT, clear
from tests.campaign.digest import ROOT, commit

LIMIT_S = 1200.0
OWN_PARTS = ("bench", "tests")


class RowFailed(Exception):
    """A row gave no figures; the message says why."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A tree with an environment of its own. `directory`: in which its programs run."""

    name: str
    python: str
    directory: Path
    commit: str

    def run(self, row: str, amounts: Mapping[str, Any], work: Path) -> dict[str, float]:
        """The figures of a row. Raises RowFailed."""
        with tempfile.TemporaryDirectory(prefix="row-", dir=work) as place:
            words = [row, "--amounts", json.dumps(dict(amounts)), "--place", place]
            command = [self.python, "-m", "bench.many.one", *words]
            try:
                ended = subprocess.run(
                    command,
                    cwd=self.directory,
                    stdout=subprocess.PIPE,
                    timeout=LIMIT_S,
                    check=False,
                    env={**os.environ, "PYTHONPATH": str(self.directory)},
                )
            except subprocess.TimeoutExpired:
                raise RowFailed(f"{row} of {self.name} took more than {LIMIT_S:.0f} s") from None
            finally:
                clear(work)
        if ended.returncode:
            raise RowFailed(f"{row} of {self.name} ended with exit code {ended.returncode}")
        found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
        return found


def present() -> Checkout:
    """This tree."""
    return Checkout(PRESENT, sys.executable, ROOT, commit([PRODUCT, "bench"]))


def other(path: Path, work: Path) -> Checkout:
    """Another tree: its environment and product below the benchmarks of this one. Raises SystemExit
    if it is not set up.
    """
    python = path / ".venv" / "bin" / "python"
    if not (path / PRODUCT).is_dir() or not python.exists():
        sys.exit(f"{path} is no checkout with an environment: run `make setup` in it")
    made = work.parent / "against"
    made.mkdir(parents=True, exist_ok=True)
    targets = {name: ROOT / name for name in OWN_PARTS} | {PRODUCT: path / PRODUCT}
    for name, target in targets.items():
        (made / name).unlink(missing_ok=True)
        (made / name).symlink_to(target.resolve())
    return Checkout(BEFORE, str(python), made, commit([PRODUCT], path))
