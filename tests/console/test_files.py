"""Scripts of the console hold together, as far as reading them tells: no browser is needed."""

from __future__ import annotations

import re
from pathlib import Path

from samelog.http.console import alarms

FILES = Path(alarms.__file__).parent / "files"
SCRIPTS = sorted(FILES.glob("*.js"))
LINE_MAX = 120
IMPORT = re.compile(r'^import (?:(\w+)|\{([^}]+)\}) from "\./([\w-]+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:const|function) (\w+)", re.MULTILINE)


def imports(text: str) -> list[tuple[str, list[str]]]:
    """File and names of each import; the name of a default export is empty."""
    found = IMPORT.findall(text)
    return [
        (file, [""] if default else re.findall(r"\w+", names)) for default, names, file in found
    ]


def test_what_is_imported_is_exported_and_used() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS}
    assert len(texts) > 10
    for name, text in texts.items():
        assert len(imports(text)) == text.count("\nimport "), name
        code = IMPORT.sub("", text)
        for file, names in imports(text):
            for each in filter(None, names):
                assert each in EXPORT.findall(texts[file]), f"{name}: {each} of {file}"
                assert re.search(rf"\b{each}\b", code), f"{name} does not use {each}"
            assert "" not in names or "\nexport default " in texts[file]


def test_what_is_exported_is_imported_somewhere() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS}
    used = {
        (file, name) for text in texts.values() for file, names in imports(text) for name in names
    }
    made = {(file, name) for file, text in texts.items() for name in EXPORT.findall(text)}
    assert made - used == set()


def test_scripts_can_be_read_by_people() -> None:
    for path in (*SCRIPTS, FILES / "index.html"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert max(map(len, lines)) <= LINE_MAX, path.name
        assert lines[0].startswith(("// ", "<!doctype")), path.name


def test_nothing_makes_elements_of_text_or_asks_other_hosts() -> None:
    for path in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, f"{path.name}: {word}"
        assert set(re.findall(r"https?://[^\"'` ]+", text)) <= {"http://www.w3.org/2000/svg"}
