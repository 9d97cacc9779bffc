"""The README, pasted into a shell: every block, in order, as it stands.

Only `/tmp/` is another directory. Blocks that need a program that is missing (kcat, Java) are
left out, and so are lines that install something: a campaign runs them in a clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = {"kcat": "kcat", "spark": "java", "pipeline": "java"}
"""What a block says that cannot be run without a program."""
INSTALLS = re.compile(r"/bin/pip ")
TIMEOUT_S = 900


def blocks() -> Iterator[str]:
    """As a shell reads them: Python is given to `python`, in a directory that is not the
    checkout's.
    """
    for language, text in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        yield text if language == "sh" else f"(cd /tmp/ && python - <<'END'\n{text}END\n)\n"


def installed(block: str) -> str:
    """The block without the lines that install something."""
    lines = block.splitlines(keepends=True)
    return "".join(line for line in lines if not INSTALLS.search(line))


def can_run(block: str) -> bool:
    return all(shutil.which(name) for word, name in NEEDS.items() if word in block)


def paste(texts: list[str], directory: Path, where: Path) -> subprocess.CompletedProcess[str]:
    """Run them in one shell that ends at the first failure, and says which block that was in."""
    tiers.require("pastes_pages")
    marked = [f"echo '--- block {number}' >&2\n{text}" for number, text in enumerate(texts)]
    begin = "set -e -o pipefail; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
    script = "\n".join([begin, *marked]).replace("/tmp/", f"{directory}/")
    try:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=where,
            env=outside_make(),
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        down = [str(ROOT / ".venv/bin/samelog"), "down", "--dir", f"{directory}/sl"]
        subprocess.run(down, capture_output=True, timeout=60, check=False)


def outside_make() -> dict[str, str]:
    """The environment of a shell that make did not start: `make` in it prints no directories."""
    made = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SAMELOG_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in made}
    return {**kept, "PATH": f"{ROOT / '.venv' / 'bin'}:{kept['PATH']}"}


@pytest.mark.usefixtures("pastes_pages")
@pytest.mark.timeout(TIMEOUT_S)
def test_every_block_works_as_it_stands(tmp_path: Path) -> None:
    texts = [text for text in map(installed, blocks()) if can_run(text) and text]
    assert len(texts) >= 2
    done = paste(texts, tmp_path, ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("998\n999\n1000\n")
    assert '0 b\'AAPL\' b\'{"symbol": "AAPL", "price": 189.7}\'' in done.stdout


@pytest.mark.usefixtures("pastes_pages")
@pytest.mark.campaign
@pytest.mark.timeout(TIMEOUT_S)
def test_every_block_works_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    done = paste(["make setup", *filter(can_run, blocks())], tmp_path, clone)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
