"""The documentation as a site: every page is there, as it is meant, with all that it needs.

Built strictly: a link that leads nowhere fails, and so does a page that README.md does not name.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from markdown import markdown
from markdown_it import MarkdownIt
from mkdocs.exceptions import Abort

from samelog import __version__
from scripts import site

PAGES = [
    *site.ROOT.glob("*.md"),
    *site.ROOT.glob("docs/**/*.md"),
    site.ROOT / "bench" / "README.md",
]
STRUCTURE = re.compile(r"<(h\d|li|ol|pre|table|tr|ul)\b")
LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"([^\"]*)|<link[^>]* href=\"([^\"]*)")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sites = tmp_path_factory.mktemp("site")
    for older in ("0.0.9", "0.0.10"):
        (sites / older).mkdir()
    return site.make(sites)


def test_every_page_is_there(made: Path) -> None:
    found = {str(path.relative_to(made)) for path in made.rglob("*.html")}
    pages = {str(path.relative_to(site.ROOT).with_suffix(".html")) for path in PAGES}
    pages = {page.replace("README", "index") for page in pages}
    assert len(pages) > 25
    assert pages <= found


def test_nothing_is_loaded_from_elsewhere(made: Path) -> None:
    found = [
        (path.name, address)
        for path in made.rglob("*.html")
        for both in LOADED.findall(path.read_text(encoding="utf-8"))
        for address in both
        if re.match(r"\w+:|//", address)
    ]
    assert found == []
    styles = "".join(path.read_text(encoding="utf-8") for path in made.rglob("*.css"))
    assert "url(http" not in styles
    assert "@import" not in styles


def test_alerts_lead_to_what_to_do(made: Path) -> None:
    text = (site.ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    links = re.findall(r"runbook_url: https://docs\.example/samelog/(.*)#(.*)", text)
    assert len(links) > 30
    for page, anchor in links:
        assert f'id="{anchor}"' in (made / page).read_text(encoding="utf-8")


def test_versions_are_listed_the_newest_first(made: Path) -> None:
    index = (made.parent / "index.html").read_text(encoding="utf-8")
    assert re.findall(r">([\d.]+)</a>", index) == [__version__, "0.0.10", "0.0.9"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(site.ROOT)))
def test_a_page_has_the_lists_and_blocks_that_its_source_has(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    extensions = ["tables", "pymdownx.superfences"]
    there = markdown(site.for_mkdocs(text), extensions=extensions)
    source = MarkdownIt("commonmark").enable("table").render(text)
    assert Counter(STRUCTURE.findall(there)) == Counter(STRUCTURE.findall(source))


def test_a_link_that_leads_nowhere_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("- **Use it**: [x](docs/x.md)\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text("[there](y.md)\n")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "README.md").write_text("here\n")
    (tmp_path / "mkdocs.yml").write_bytes((site.ROOT / "mkdocs.yml").read_bytes())
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    with pytest.raises(Abort):
        site.make(tmp_path / "site")
