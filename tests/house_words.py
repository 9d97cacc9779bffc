"""Counts words of tests/house_words.txt per package; tests/ratchet.py lets the counts only fall.

`python -m tests.house_words samelog/wire docs` lists each word with its file and line.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = Path(__file__).with_suffix(".txt")
FOLDERS = ("samelog", "tests", "bench", "scripts", "docs")
SUFFIXES = {".py", ".pyi", ".pyx", ".pxi", ".js", ".sh", ".md"}
VENDORED = ROOT / "tests" / "console" / "vendor"
TOP = "top level"


@cache
def lines() -> tuple[str, ...]:
    """Return the entries of the list."""
    found = (line.strip() for line in WORDS.read_text(encoding="utf-8").splitlines())
    return tuple(line for line in found if line and not line.startswith("#"))


@cache
def pattern() -> re.Pattern[str]:
    """Return a pattern for the words; spaces of a phrase may be the end of a line."""
    words = (re.escape(line).replace(r"\ ", r"\s+(?:#\s+)?") for line in lines() if "*" not in line)
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


def found_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and text of each word of a file; line 1 for the file's name."""
    if any(fnmatch(path.name, line) for line in lines() if "*" in line):
        yield 1, path.name
    text = path.read_text(encoding="utf-8")
    for match in pattern().finditer(text):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match.group().split())


def sources(folder: Path) -> Iterator[Path]:
    """Yield the texts below a folder, or the file itself."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and VENDORED not in path.parents:
            yield path


def house_words() -> dict[str, int]:
    """Return how many words each package of the product and each other folder has."""
    found = Counter[str]()
    files = [*ROOT.glob("*.md"), *(path for name in FOLDERS for path in sources(ROOT / name))]
    for path in files:
        if path.name == "CHANGELOG.md":  # what was released stays
            continue
        first, *rest = path.relative_to(ROOT).parts
        package = rest[0] if first == "samelog" and len(rest) > 1 else first if rest else TOP
        found[package] += sum(1 for _ in found_in(path))
    return dict(found)


def main(folders: list[str]) -> int:
    """List the words below folders."""
    for folder in folders or FOLDERS:
        for path in sources(ROOT / folder):
            for line, word in found_in(path):
                sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {word}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
