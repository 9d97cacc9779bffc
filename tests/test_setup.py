"""scripts/setup.sh builds the kernels whenever their source is not what they were built from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "setup.sh"
KERNELS = (
    "samelog/format/_kernels",
    "samelog/runtime/disk/_disk_threads",
    "samelog/runtime/network/_tls",
    "samelog/kafka/codec/primitives",
    "samelog/store/keys/_key_pages",
)
PYTHON = """#!/bin/sh
echo "$@" >>calls
case "$*" in
*--editable*) for kernel in $INSTALLS; do : >"$kernel.so"; done ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose Python only notes what it is asked for."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    for name in ("pyproject.toml", "setup.py"):
        (tmp_path / name).write_text("")
    for kernel in KERNELS:
        (tmp_path / kernel).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{kernel}.pyx").write_text("")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def builds(tree: Path) -> int:
    """Run the script; how often the kernels were built alone."""
    own = {"INSTALLS": " ".join(f"{kernel}.x" for kernel in KERNELS)}
    calls = tree / "calls"
    calls.unlink(missing_ok=True)
    subprocess.run(["sh", tree / "scripts" / "setup.sh"], env=os.environ | own, check=True)
    return calls.read_text().count("build_ext") if calls.exists() else 0


def test_an_installation_builds_missing_kernels(tree: Path) -> None:
    assert builds(tree) == 0
    assert builds(tree) == 0
    (tree / f"{KERNELS[0]}.pyx").write_text("changed")
    assert builds(tree) == 1


def test_kernels_of_an_older_source_are_built_although_packages_are_installed(tree: Path) -> None:
    builds(tree)
    (tree / f"{KERNELS[0]}.pyx").write_text("changed")
    (tree / "pyproject.toml").write_text("changed")
    assert builds(tree) == 1
    assert builds(tree) == 0
