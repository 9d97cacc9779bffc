"""Write the documentation as a site into build/site/VERSION: python -m scripts.site

The pages are those of the repository, where they are: their links are the site's, and a link that
leads nowhere fails. The order is that of README.md's list. Sites of several versions lie side by
side; `index.html` lists those that are there.

Invariant: nothing of the site comes from elsewhere, so that it can be read without the internet.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from samelog import __version__

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
SITES = ROOT / "build" / "site"
ITEM = re.compile(r"^- \*\*(\w[\w ]+)\*\*: (\[.*(?:\n  .*)*)", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
MARKER = re.compile(r"(?:[-*]|\d+[.)]) +")
FENCE = "```"
INDEX = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>samelog</title>
<h1>samelog</h1>
<ul>
{}
</ul>
</html>
"""


def navigation(readme: str) -> list[dict[str, str | list[dict[str, str]]]]:
    """README.md's list of documents, as mkdocs wants it. The pages beside a README.md of docs/
    follow it.
    """
    nav: list[dict[str, str | list[dict[str, str]]]] = [{"samelog": "README.md"}]
    for item in ITEM.finditer(readme):
        pages = [
            {title[0].upper() + title[1:]: path}
            for known in LINK.findall(item[2])
            for title, path in (known, *_beside(known[1]))
        ]
        nav.append({item[1]: pages})
    return nav


def _beside(path: str) -> list[tuple[str, str]]:
    """(title, path) of the pages in the directory of a README.md of docs/; else none."""
    page = Path(path)
    is_index = page.name == "README.md" and page.parts[0] == "docs"
    beside = sorted((ROOT / page.parent).glob("*.md")) if is_index else []
    others = [other.relative_to(ROOT) for other in beside if other.name != page.name]
    return [(f"Rules: {other.stem}", str(other)) for other in others]


def for_mkdocs(text: str) -> str:
    """What is in a list is four spaces to the right, not below the item's text. An empty line comes
    before a list that begins, and before an item that does not just follow another one's text.
    """
    return "\n".join(_indented(text)) + "\n"


def _indented(text: str) -> Iterator[str]:
    columns: list[int] = []
    is_code, follows, before = False, False, ""
    for line in text.splitlines():
        stripped = line.lstrip(" ")
        indent, depth = len(line) - len(stripped), len(columns)
        while stripped and columns and indent < columns[-1] and not is_code:
            columns.pop()
        marker = None if is_code else MARKER.match(stripped)
        if marker and before and not (follows and len(columns) == depth - 1):
            yield ""
        inside = max(0, indent - (columns[-1] if columns else 0))
        yield " " * (4 * len(columns) + inside) + stripped if stripped else ""
        if marker:
            columns.append(indent + len(marker[0]))
        is_code ^= stripped.startswith(FENCE)
        follows = bool(marker or (follows and stripped))
        before = stripped


def copy_pages() -> None:
    """The pages, and what is beside them for readers, to where mkdocs looks."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.*"), ROOT / "bench" / "README.md"]:
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(for_mkdocs(path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copy(path, copy)


def make(sites: Path = SITES) -> Path:
    """This version's site. Raises mkdocs' Abort for a link that leads nowhere."""
    copy_pages()
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(PAGES),
        site_dir=str(sites / __version__),
        nav=navigation((ROOT / "README.md").read_text(encoding="utf-8")),
        site_name=f"samelog {__version__}",
        strict=True,
    )
    build(config)
    names = sorted((path.name for path in sites.iterdir() if path.is_dir()), key=_numbers)
    lines = [f'<li><a href="{name}/index.html">{name}</a></li>' for name in reversed(names)]
    (sites / "index.html").write_text(INDEX.format("\n".join(lines)), encoding="utf-8")
    return sites / __version__


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


if __name__ == "__main__":
    print(f"the documentation is in {make() / 'index.html'}")
