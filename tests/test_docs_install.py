"""Nothing tells anyone to install another project's distribution.

Nothing of samelog is on a package index yet, so a bare name would install somebody else's code.
Invariant: what is installed is named by a path: of a checkout, or of a wheel file built in one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("samelog", "bench", "docs", "deploy", "examples")
KINDS = {".py", ".md", ".yaml", ".service", ".sh", ".toml", ".json", ".go", ".java", ""}
INSTALL = re.compile(r"\b(?:pip3?|pipx|uv(?: pip| tool)?|conda|mamba) (?:install|add)\b([^\n]*)")
PATH = re.compile(r"""["']?(?:\.|/|\$|[\w./-]+\.whl)""")
EXTRA = re.compile(r"extras? ['`](\w+)['`]")


def texts() -> Iterator[tuple[str, str]]:
    """What users, operators and their tools read: pages, messages, units, manifests, images."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*below, *ROOT.glob("*.md")]):
        if path.is_file() and path.suffix in KINDS:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def targets(command: str) -> Iterator[str]:
    """What stands behind `pip install`, up to the end of the command, but for its options."""
    rest = re.split(r"\s#|[`;|)]|&&|\\n", command)[0]
    yield from (word for word in rest.split() if not word.startswith("-"))


def bare_names(text: str) -> list[str]:
    """What a text has installed by its name."""
    found = (target for match in INSTALL.finditer(text) for target in targets(match[1]))
    return [target for target in found if not PATH.match(target)]


def test_whatever_is_installed_is_named_by_a_path() -> None:
    assert [f"{path}: {name}" for path, text in texts() for name in bare_names(text)] == []


def test_names_are_told_from_paths() -> None:
    assert bare_names("`pip install 'samelog[spark]'` brings it") == ["'samelog[spark]'"]
    assert bare_names("uv pip install -q shiplog && echo") == ["shiplog"]
    assert bare_names("pip install --no-cache-dir \"/src[archive]\" '.[spark]' dist/a-1.whl") == []


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "samelog"
    named = {name for _, text in texts() for name in EXTRA.findall(text)}
    assert len(named) >= 4
    assert named - set(project["optional-dependencies"]) == set()


def test_the_name_of_before_is_gone() -> None:
    """Another project owns it on the package index."""
    before = "ship" + "log"
    assert [path for path, text in texts() if before in text and path != "CHANGELOG.md"] == []
