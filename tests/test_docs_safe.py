"""Blocks in docs are safe to paste: they destroy nothing, and dial nothing outside of this host.

A reader pastes a block before reading the text below it. Names under `.example`, `.test` and
`.invalid` (RFC 2606) never resolve, but example.com, example.net and example.org do; names under
`.svc` exist in a Kubernetes cluster only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_confirmation import DESTRUCTIVE
from tests.cli.test_documented_commands import commands

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
)
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
TEXTS = {".md", ".py", ".sh", ".toml", ".tpl", ".yaml", ".yml"}
SHELL = {"", "sh", "bash", "console"}
ADDRESS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])")
URL = re.compile(r"\b([a-z][a-z0-9+]*)://([^/\s\"'`?]*)(\S*)")
HOST_PORT = re.compile(r"(?<![\w./:@-])([A-Za-z][\w.-]*):\d{2,5}\b")
RESERVED = re.compile(r"(?:.*\.)?(?:example|test|invalid)|localhost|.*\.svc|\$.*|[A-Z_]+")
EXISTING = re.compile(r"\bexample\.(?:com|net|org)\b")
LOCAL_SCHEMES = {"file", "samelog", "hdfs"}
"""`samelog` is that of identities; an hdfs URL without a host is that of the configuration."""
PLACEHOLDER = re.compile(r"[A-Z]+")
REMOVES = re.compile(r"\brm\s+-\w*[rf]|\bmkfs|\bdd\s+if=|\bkubectl\s+delete|\bhelm\s+uninstall")


def dialled(text: str) -> Iterator[str]:
    """Hosts outside of this one that a block names."""
    yield from (each for each in ADDRESS.findall(text) if not each.startswith(("127.", "0.0.0.0")))
    for scheme, place, rest in URL.findall(text):
        host = re.sub(r":\d+$", "", place.rpartition("@")[2])
        if scheme == "s3":
            server = re.search(r"endpoint_override=([^:&\"'\s]+)", rest)
            host = server[1] if server else "s3.amazonaws.com"
        is_local = scheme in LOCAL_SCHEMES or host.startswith(("127.", "[::1]")) or not host
        if not is_local and not RESERVED.fullmatch(host):
            yield f"{scheme}://{host}"
    yield from (each for each in HOST_PORT.findall(text) if not RESERVED.fullmatch(each))


def destroyed(text: str) -> Iterator[str]:
    """Commands of a block of a shell that would destroy something as they stand."""
    yield from REMOVES.findall(text)
    for line in text.replace("\\\n", " ").splitlines():
        if "samelog" not in line:
            continue
        for arguments in commands(line.strip().removeprefix("$ ")):
            named = tuple(arguments[:2])
            given = [arguments[at + 1] for at, each in enumerate(arguments) if each == "--confirm"]
            given += [each.partition("=")[2] for each in arguments if each.startswith("--confirm=")]
            if named in DESTRUCTIVE and not all(map(PLACEHOLDER.fullmatch, given)):
                yield shlex.join(arguments)


def problems(page: Path) -> list[str]:
    found = []
    for _, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        found += [f"dials {each}" for each in dialled(text)]
        if language in SHELL:
            found += [f"destroys: {each}" for each in destroyed(text)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_safe_to_paste(page: Path) -> None:
    assert problems(page) == []


@pytest.mark.parametrize("folder", ["docs", "deploy", "samelog"])
def test_examples_name_no_host_that_resolves(folder: str) -> None:
    texts = (path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)
    found = [str(path) for path in texts if EXISTING.search(path.read_text("utf-8"))]
    assert found == []


UNSAFE = (
    ("sh", "samelog cluster reset --hard --confirm production --config c.toml", "destroys"),
    ("console", "$ samelog topic delete t \\\n  --confirm=t", "destroys"),
    ("", "kubectl exec x -- samelog node remove n --confirm n", "destroys"),
    ("sh", "rm -rf /var/lib/samelog", "destroys"),
    ("console", "samelog node add far 10.1.0.9:7000", "dials 10.1.0.9"),
    ("toml", 'bootstrap = ["kafka1:9092"]', "dials kafka1"),
    ("python", 'registry = "http://registry:8081"', "dials http://registry"),
    ("sh", "curl https://rt0.example.com/status", "dials https://rt0.example.com"),
    ("toml", 'nodes = ["rt0.example.org:7000"]', "dials rt0.example.org"),
    (
        "sh",
        'samelog restore t --from "s3://bucket/samelog?region=eu"',
        "dials s3://s3.amazonaws.com",
    ),
)
SAFE = (
    ("sh", "samelog cluster reset --hard --config client.toml"),
    ("sh", "samelog topic delete t --confirm NAME"),
    ("sh", "curl https://rt0.example:7000/status http://127.0.0.1:7080 http://[::1]:7080/"),
    ("toml", 'listen = "0.0.0.0:7000"\nnodes = ["$HOST:7000", "a.example:7000", "b.test:7000"]'),
    ("sh", 'samelog restore t --from "s3://b/x?endpoint_override=s3.example:9000&scheme=http"'),
)


@pytest.mark.parametrize(("language", "text", "problem"), UNSAFE)
def test_unsafe_blocks_are_noticed(tmp_path: Path, language: str, text: str, problem: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"text\n\n```{language}\n{text}\n```\n")
    assert any(each.startswith(problem) for each in problems(page)), problems(page)


@pytest.mark.parametrize(("language", "text"), SAFE)
def test_safe_blocks_are_left_alone(tmp_path: Path, language: str, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"1. text\n\n   ```{language}\n   {text}\n   ```\n")
    assert problems(page) == []
