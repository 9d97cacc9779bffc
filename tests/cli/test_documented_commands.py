"""Every `samelog …` of the documentation and of deploy/ is a command with these options."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from samelog.cli.main import main

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "deploy").rglob("*.service"),
        *(ROOT / "deploy").rglob("*.yaml"),
    ]
)
SHELL = {"", "sh", "console"}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (\S.*\n)", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
UNIT = re.compile(r"^Exec\w+=(.*)$", re.MULTILINE)
EXEC = re.compile(r"^\s*- (exec .*)$", re.MULTILINE)
BEFORE_A_COMMAND = {"do", "then", "--", "exec"}
PUNCTUATION = set("();<>|&")
PLACEHOLDER = re.compile(r"…|\.\.\.|\$|^[A-Z]")


class Unknown(Exception):
    """What a command has not."""


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `samelog` that a shell would run."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    before = ";"
    found: list[str] | None = None
    for token in lexer:
        if set(token) <= PUNCTUATION:
            if found is not None:
                if token.startswith(">") and found[-1:] == ["2"]:  # stderr's number
                    found.pop()
                yield found
            found = None
        elif found is not None:
            found.append(token)
        elif token.endswith("/bin/samelog") or (
            token == "samelog" and (before in BEFORE_A_COMMAND or set(before) <= PUNCTUATION)
        ):
            found = []
        before = token
    if found is not None:
        yield found


def whole(page: Path) -> Iterator[str]:
    """What can be typed as it stands."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        blocks = [body for language, body in FENCED.findall(text) if language in SHELL]
        blocks += INDENTED.findall(FENCED.sub("", text))
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")
    else:
        yield from (UNIT if page.suffix == ".service" else EXEC).findall(text)


def mentions(page: Path) -> Iterator[str]:
    """What the text names: of `a|b` each, without what may be left out."""
    text = FENCED.sub("", page.read_text(encoding="utf-8")) if page.suffix == ".md" else ""
    for said in INLINE.findall(text):
        plain = re.sub(r"[\[\]]", "", said)
        words = [word.split("|") for word in plain.split(" ")]
        if "samelog" in plain and " | " not in plain:
            yield from map(" ".join, itertools.product(*words))


def check(command: click.Command, arguments: Sequence[str], *, complete: bool) -> None:
    """Raises Unknown, if there is no such command, option or choice; if the line is to be
    complete, also for arguments that are missing.
    """
    context = click.Context(command, info_name="samelog")
    if "--help" in arguments[:1]:
        return
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage as error:
        if complete:
            raise Unknown(error.format_message()) from error
        return  # an option is named without its value
    except click.UsageError as error:
        raise Unknown(error.format_message()) from error
    if isinstance(command, click.Group) and rest:
        name, *others = rest
        if PLACEHOLDER.search(name):
            return
        inner = command.get_command(context, name)
        if inner is None:
            raise Unknown(f"no command {name!r}")
        check(inner, others, complete=complete)
        return
    if rest and not any(map(PLACEHOLDER.search, rest)):
        raise Unknown(f"too many arguments: {rest}")
    for parameter in command.params:
        _check_value(parameter, values.get(str(parameter.name)), complete=complete)


def _check_value(parameter: click.Parameter, value: object, *, complete: bool) -> None:
    given = value if isinstance(value, tuple | list) else [value]
    texts = [text for text in given if isinstance(text, str) and not PLACEHOLDER.search(text)]
    kind = parameter.type
    if isinstance(kind, click.Choice):
        for text in texts:
            if text not in kind.choices:
                raise Unknown(f"{parameter.name}: {text!r} is none of {kind.choices}")
    needed = parameter.required and not parameter.envvar
    if complete and needed and not [x for x in given if isinstance(x, str)]:
        raise Unknown(f"{parameter.name} is missing")


def problems(page: Path) -> Iterator[str]:
    """What is wrong with a page's commands."""
    for complete, texts in ((True, whole(page)), (False, mentions(page))):
        for text in texts:
            if "samelog" not in text:
                continue
            for arguments in commands(text):
                try:
                    check(main, arguments, complete=complete and "$TOPICS" not in arguments)
                except Unknown as error:
                    yield f"{text}: {error}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_exist(page: Path) -> None:
    assert list(problems(page)) == []


def test_commands_are_found_and_wrong_ones_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`samelog config check|shaw FILE` `install -o samelog -g samelog` `samelog node add`\n"
        "```sh\nfor n in 1; do samelog pki issue node rt$n --hist a; done  # samelog nothing\n"
        "samelog pki issue king arthur && samelog node add\nx -- samelog pki list extra\n```\n"
        "\n    seq 3 | samelog status --nodes\n"
    )
    found = list(problems(page))
    assert len(found) == 6
    for text, wanted in zip(
        found, ("--hist", "'king'", "missing", "extra", "--nodes", "'shaw'"), strict=True
    ):
        assert wanted in text
