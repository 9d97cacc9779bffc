"""Runs docs/spark-tutorial.md: every block, in order, on a real cluster; what is printed must be
what the page says.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from samelog.cli.main import main
from tests.e2e.harness import World

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "spark-tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLUSTER, SCRATCH = "/tmp/sl/", "/tmp/tutorial/"


class Block(NamedTuple):
    """A block of the page: its line, language and text."""

    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    page = PAGE.read_text(encoding="utf-8")
    for match in BLOCK.finditer(page):
        yield Block(page.count("\n", 0, match.start()) + 1, match[1], match[2])


def shell(text: str) -> None:
    """Each line is a command of this project, run in this process: it uses the session there is."""
    for line in text.replace("\\\n", "").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "samelog", line
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, f"{line}\n{done.stderr}\n{done.exception!r}"


@pytest.mark.timeout(400)
def test_the_tutorial_is_true(spark: SparkSession, world: World, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks():
        place = f"{PAGE.name}:{block.line}"
        text = block.text.replace(CLUSTER, f"{world.cluster.directory}/")
        text = text.replace(SCRATCH, f"{tmp_path}/")
        match block.language:
            case "python":
                with redirect_stdout(io.StringIO()) as out:
                    exec(compile(text, place, "exec"), names)
                printed = out.getvalue()
            case "sh":
                shell(text)
            case "text":
                assert printed.strip() == block.text.strip(), place
            case other:
                assert other == "console", place
