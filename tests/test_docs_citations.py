"""What the rules and docs/glossary.md say is there, and every citation of a rule resolves.

Invariant: a rule keeps its name, and a word of the glossary names something that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.catalogue import rows

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("samelog", "tests", "bench", "docs", "deploy", "scripts")
SUFFIXES = {".py", ".pyx", ".pyi", ".md", ".txt", ".sh", ".toml", ".yaml"}
RULES = DOCS / "design" / "invariants"
HEADING = re.compile(r"^(?:### (Invariant \d+)|## (\w+\.\d+)): ", re.MULTILINE)
_RULE = r"(?:# )?[a-z]+\.\d+"
CITED = re.compile(rf"\b(invariants? \d+|rules?\s+{_RULE}(?:(?:,| and| to| or)\s+{_RULE})*)")
NAMED = re.compile(r"[a-z]+\.\d+")
BY_NAME = re.compile(r"`(samelog(?:\.\w+)+)`")
SECTION = "\N{SECTION SIGN}"
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def texts() -> Iterator[tuple[Path, str]]:
    """Every text of the project."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in sorted([*found, *ROOT.glob("*.md"), *ROOT.glob("*.toml")]):
        if path.suffix in SUFFIXES and path.is_file():
            yield path, path.read_text(encoding="utf-8")


@cache
def sections() -> dict[str, str]:
    """The text of each invariant and rule, by what it is cited as: `invariant 3`, `rule raft.2`."""
    found: dict[str, str] = {}
    for page in sorted(RULES.glob("*.md")):
        parts = HEADING.split(page.read_text(encoding="utf-8"))[1:]
        for invariant, rule, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            name = f"rule {rule}" if rule else invariant.lower()
            assert name not in found, f"{name} is there twice"
            found[name] = text
    return found


def test_the_rules_of_a_page_are_numbered_from_1_under_its_subject() -> None:
    for page in RULES.glob("*.md"):
        found = re.findall(r"^## (\w+\.\d+): ", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert found == [f"{page.stem}.{n}" for n in range(1, len(found) + 1)]


def test_every_cited_rule_exists() -> None:
    offenders, count = [], 0
    for path, text in texts():
        for match in CITED.finditer(text):
            cited = {f"rule {name}" for name in NAMED.findall(match[1])} or {match[1]}
            count += len(cited)
            offenders += [f"{path.relative_to(ROOT)}: {name}" for name in cited - set(sections())]
    assert offenders == []
    assert count > 100  # the pattern still finds them


def test_nothing_is_cited_by_the_sign_of_a_section() -> None:
    """Numbered sections are those of documents outside of the repository: cite a rule, or a page
    and its heading.
    """
    assert [str(path) for path, text in texts() if SECTION in text] == []


def test_every_rule_names_its_planted_bugs() -> None:
    planted: dict[str, set[str]] = {name: set() for name in sections()}
    for row in rows():
        if row.rule in planted:
            planted[row.rule].add(row.name)
    listed = {
        name: set(re.findall(r"`(\w+)`", text.partition("- Planted:")[2].partition("\n\n")[0]))
        for name, text in sections().items()
    }
    assert listed == planted


@pytest.mark.parametrize("pages", ["design/invariants/*.md", "glossary.md"])
def test_every_module_and_type_that_is_named_exists(pages: str) -> None:
    names = {name for p in DOCS.glob(pages) for name in BY_NAME.findall(p.read_text("utf-8"))}
    assert len(names) > 30
    assert sorted(name for name in names if not exists(name)) == []


def test_every_word_of_the_glossary_says_what_it_is_and_where() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = [entry.split("**: ", 1) for entry in re.split(r"^- \*\*", text, flags=re.MULTILINE)[1:]]
    assert all(len(entry) == 2 for entry in words)
    assert all(re.search(r"\.\s+In\s+`", said) and BY_NAME.search(said) for _, said in words)
    assert len({word for word, _ in words}) == len(words) > 40


def test_every_link_between_pages_leads_somewhere() -> None:
    offenders = []
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "bench").glob("*.md")]:
        for target, heading in LINK.findall(page.read_text(encoding="utf-8")):
            if target.startswith("http"):
                continue
            other = (page.parent / target).resolve() if target else page
            if not other.exists() or (heading and heading not in anchors(other)):
                offenders.append(f"{page.relative_to(ROOT)}: {target}#{heading}")
    assert offenders == []


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, _, attribute = name.rpartition(".")
    if _is_module(name):
        return True
    return _is_module(module) and hasattr(import_module(module), attribute)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
