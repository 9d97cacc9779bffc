"""Whether code has changed: one digest of all source files that a result depends on.

Invariant: tests and what is built count for nothing; a file that is renamed changes the digest.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (".py", ".pyx", ".pxi", ".h")
DIGEST_BYTES = 5
UNCOMMITTED = "+"


def sources(place: Path) -> Iterator[Path]:
    """The source files in a folder; a file is its own."""
    if place.is_file():
        yield place
    for path in sorted(place.rglob("*")):
        if path.suffix in SOURCES and not path.name.startswith("test_"):
            yield path


def digest(places: Iterable[str], root: Path = ROOT) -> str:
    """The digest of folders and files, named from the root."""
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for path in sorted({path for place in places for path in sources(root / place)}):
        content = hashlib.blake2b(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(root)} {content}\n".encode())
    return found.hexdigest()


def commit(places: Sequence[str], root: Path = ROOT) -> str:
    """The commit that code is of, as git names it; with a plus sign if the code differs from it."""
    try:
        name = _git(root, "rev-parse", "--short", "HEAD").stdout.strip()
        changed = _git(root, "status", "--porcelain", "--", *places).stdout.strip()
    except OSError:
        return "unknown"
    return (name or "unknown") + (UNCOMMITTED if changed else "")


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
