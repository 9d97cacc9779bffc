"""Measures how much of each package the tests reach: `make coverage`.

The lines that ran are counted in the tests' own process and in every process that they start or
fork, unless it is killed. Invariant: a floor in tests/ratchet.toml only rises, and only a run of
all tests raises it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from tests import ratchet

OUTPUT = ratchet.ROOT / "build" / "coverage"
SETTINGS = """
[run]
source = samelog
data_file = {output}/data
parallel = true
patch = subprocess, fork, _exit
sigterm = true
[report]
exclude_also =
    if TYPE_CHECKING:
    \\.\\.\\.$
"""


def main(tests: Sequence[str]) -> int:
    """Run tests (all of them unless some are named), report, compare with the floors."""
    if find_spec("coverage") is None:
        _run("pip", "install", "--quiet", "--disable-pip-version-check", "coverage>=7.10,<8")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for old in OUTPUT.glob("data*"):
        old.unlink()
    (OUTPUT / "settings").write_text(SETTINGS.format(output=OUTPUT), encoding="utf-8")
    run = ["coverage", "run", "-m", "pytest", "-q", "-n", "2", *tests]
    failed = _run(*run)
    _run("coverage", "combine", "--quiet")
    _run("coverage", "json", "--quiet", "-o", str(OUTPUT / "report.json"))
    _run("coverage", "html", "--quiet", "-d", str(OUTPUT / "html"))
    found = per_package(json.loads((OUTPUT / "report.json").read_text(encoding="utf-8")))
    for name, percent in found.items():
        sys.stdout.write(f"{name:12} {percent:3} %\n")
    if tests or failed:
        return failed
    return compare(found)


def _run(*command: str) -> int:
    env = {**os.environ, "COVERAGE_RCFILE": str(OUTPUT / "settings")}
    return subprocess.run([sys.executable, "-m", *command], env=env, check=False).returncode


def per_package(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, int]:
    """The covered lines of each package, in whole per cent, rounded down."""
    covered, lines = Counter[str](), Counter[str]()
    for path, file in report["files"].items():
        parts = Path(path).parts[1:]
        package = parts[0] if len(parts) > 1 else "samelog"
        covered[package] += file["summary"]["covered_lines"]
        lines[package] += file["summary"]["num_statements"]
    return {name: 100 * covered[name] // lines[name] for name in sorted(lines) if lines[name]}


def compare(found: dict[str, int]) -> int:
    """Below a floor: say so. Nowhere below: the floors rise to what was found."""
    record = ratchet.recorded()
    low = {name: floor for name, floor in record.coverage.items() if found.get(name, 0) < floor}
    for name, floor in low.items():
        sys.stdout.write(f"{name}: {found.get(name, 0)} %, at least {floor} % wanted\n")
    if low:
        return 1
    ratchet.RECORD.write_text(ratchet.written(replace(record, coverage=found)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
