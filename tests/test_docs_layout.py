"""Pages that say where things are agree with pyproject.toml and with the tree.

`make docs` writes the layers into CONTRIBUTING.md and docs/ARCHITECTURE.md, by
`python -m tests.test_docs_layout`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tests.tables import with_tables, write_tables

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
PAGES = (ROOT / "CONTRIBUTING.md", ARCHITECTURE)
CODE = re.compile(r"`([\w./]+)`")
ITEM = re.compile(r"^- ([^:]+): (.*(?:\n  .*)*)", re.MULTILINE)
PURE = re.compile(r"Pure:\s+((?:`[^`]+`,?\s*|all)+)\.")


def contract(name: str) -> dict[str, Any]:
    """An import contract of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [found] = (
        each for each in settings["tool"]["importlinter"]["contracts"] if each.get("id") == name
    )
    return dict(found)


def layers(_scratch: Path | None = None) -> dict[str, str]:
    """The layers of packages, the uppermost first, as a block of text."""
    found = [line.replace("samelog.", "") for line in contract("layers")["layers"]]
    return {"layers": "\n".join(["```", *(line.replace(" |", ",") for line in found), "```", ""])}


def rows() -> dict[str, tuple[str, str]]:
    """Package -> what it does and what of it is pure, by docs/ARCHITECTURE.md."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    part = text.partition("## Where things are\n")[2].partition("\nImports go")[0]
    return {
        name.rstrip("/"): (PURE.sub("", does), "".join(PURE.findall(does)))
        for packages, does in ITEM.findall(part)
        for name in CODE.findall(packages)
    }


def is_there(package: str, name: str) -> bool:
    """Whether a package has a module or a folder of this name."""
    path = ROOT / "samelog" / package / name.rstrip("/").replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_the_layers_on_the_pages_are_those_of_the_import_contract() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == with_tables(text, layers()), "run `make docs`"


def test_every_package_is_in_the_table_and_in_the_layers() -> None:
    packages = {path.parent.name for path in (ROOT / "samelog").glob("*/__init__.py")}
    assert set(rows()) == packages
    assert set(re.findall(r"samelog\.(\w+)", " ".join(contract("layers")["layers"]))) == packages


def test_the_parts_of_packages_that_are_named_exist() -> None:
    offenders = [
        f"{package}: {name}"
        for package, (does, pure) in rows().items()
        for name in CODE.findall(f"{does} {pure}")
        if not is_there(package, name)
    ]
    assert offenders == []


def test_what_is_called_pure_is_under_the_contract_that_says_so() -> None:
    pure = set(contract("purity")["source_modules"])
    for package, (_, named) in rows().items():
        if named.strip() == "all":
            assert f"samelog.{package}" in pure
        for name in CODE.findall(named):
            assert f"samelog.{package}.{name.rstrip('/').replace('/', '.')}" in pure, name


def test_where_to_change_what_is_there() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    part = text.partition("## Where to change what\n")[2].partition("\n## ")[0]
    paths = CODE.findall(part)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / "samelog" / path).exists()] == []


if __name__ == "__main__":
    for each in PAGES:
        write_tables(each, layers)
