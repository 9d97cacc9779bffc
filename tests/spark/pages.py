"""Runs a page of docs/: every block, in order, on a real cluster; what is printed must be what the
page says.

Also as a process of its own, whose PySpark is that of PYTHONPATH:
python -m tests.spark.pages PAGE CLUSTER SCRATCH JAR…
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from samelog.cli.main import main

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLUSTER = "/tmp/sl/"


class Block(NamedTuple):
    """A block of a page: its line, language and text."""

    line: int
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield Block(text.count("\n", 0, match.start()) + 1, match[1], match[2])


def shell(text: str) -> None:
    """Each line is a command of this project, run in this process: it uses the session there is."""
    for line in text.replace("\\\n", "").splitlines():
        program, *arguments = shlex.split(line)
        assert program == "samelog", line
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, f"{line}\n{done.stderr}\n{done.exception!r}"


def run(page: str, cluster: str, scratch: str) -> None:
    """`cluster` and `scratch` take the places of /tmp/sl and of the page's other directory."""
    names: dict[str, Any] = {}
    printed = ""
    own = f"/tmp/{Path(page).stem.removeprefix('spark-')}/"
    for block in blocks(page):
        place = f"{page}:{block.line}"
        text = block.text.replace(CLUSTER, f"{cluster}/").replace(own, f"{scratch}/")
        match block.language:
            case "python":
                with redirect_stdout(io.StringIO()) as out:
                    exec(compile(text, place, "exec"), names)
                printed = out.getvalue()
            case "sh":
                shell(text)
            case "text":
                assert printed.strip() == block.text.strip(), f"{place}:\n{printed}"
            case other:
                assert other in {"console", "properties"}, place


if __name__ == "__main__":
    from tests.spark.conftest import start_session

    jars = {"spark.jars": ",".join(sys.argv[4:])}
    start_session("local[2]", **jars)
    run(*sys.argv[1:4])
