"""What every command shares: options, tables and JSON on stdout, talk and progress on stderr.

Invariant: stdout carries only what was asked for, in a form that a program can read when it is not
a terminal or `--json` is given; text that came from elsewhere can't control the terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, NoReturn, TypeVar

import click

from samelog.config.schema.environment import CONFIG_VARIABLE
from samelog.config.tables.client import ClientConfig
from samelog.wire.plain import to_json

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

EXIT_FAILED = 1
"""What was asked for is not so, or could not be done."""
EXIT_USAGE = 2
"""The command line or a configuration file is wrong."""
EXIT_REMOVED = 3
"""A node that does not belong to its cluster any more: starting it again changes nothing."""


def _load_client(ctx: click.Context, param: click.Parameter, path: str) -> ClientConfig | None:
    from samelog.config.load import load_client

    return load_client(path) if path or param.required else None


_JSON = "samelog.json"
json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update({_JSON: value}),
    help="Print JSON on stdout.",
)
"""What `wants_json` then says."""


def wants_json() -> bool:
    """Whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


class ConfigPlace(click.ParamType[str]):
    """Where a configuration file is; the error of a missing one says which file is meant."""

    def __init__(self, name: str, missing: str) -> None:
        self.name = name
        self._missing = missing

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return which file to name, and how."""
        return self._missing


_CLIENT_PLACE = ConfigPlace(
    "FILE|URL",
    f"Name a client.toml by --config FILE, by {CONFIG_VARIABLE}=FILE, or once for all by: "
    "samelog context add NAME FILE. To start a local cluster: samelog up",
)


class _ClientOption(click.Option):
    """An option that a variable or a context may stand for, so that help does not require it."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What help appends in brackets."""
        extra = super().get_help_extra(ctx)
        extra.pop("required", None)
        return extra


client_option = click.option(
    "--config",
    cls=_ClientOption,
    type=_CLIENT_PLACE,
    required=True,
    envvar=CONFIG_VARIABLE,
    metavar="FILE|URL",
    callback=_load_client,
    help="The client.toml of the cluster, or its https:// URL (docs/enrolment.md).  "
    f"[default: {CONFIG_VARIABLE}, or the current context]",
)
"""Gives the command `config`, a ClientConfig."""


def near(path: str) -> str:
    """A path as people write it: from the working directory, if it is below that."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith(os.pardir) else relative


def _client_file(ctx: click.Context, param: click.Parameter, path: str) -> str:
    from samelog.config.document import absolute_place
    from samelog.config.load import load_client

    load_client(path)
    return absolute_place(path)


def _client_file_option(what: str) -> Callable[[CommandT], CommandT]:
    return click.option(
        "--config",
        cls=_ClientOption,
        type=_CLIENT_PLACE,
        required=True,
        envvar=CONFIG_VARIABLE,
        metavar="FILE|URL",
        callback=_client_file,
        help=f"The client.toml of the cluster, {what}.  "
        f"[default: {CONFIG_VARIABLE}, or the current context]",
    )


client_file_option = _client_file_option("or its https:// URL (docs/enrolment.md)")
"""Gives the command `config`, the path of a client.toml that can be read."""

spark_client_file_option = _client_file_option("at the same path on all executors")
"""The same, for what Spark's executors read, too."""


def optional_client(without: str) -> Callable[[CommandT], CommandT]:
    """Gives the command `config`, a ClientConfig or None; `without`: what the command does then."""
    text = f"The client.toml of the cluster, else {CONFIG_VARIABLE}; without it or '', {without}."
    return click.option(
        "--config", envvar=CONFIG_VARIABLE, metavar="FILE|URL", callback=_load_client, help=text
    )


optional_client_option = optional_client("only local files are used")
"""Gives the command `config`, a ClientConfig or None."""


def _registry(ctx: click.Context, param: click.Parameter, url: str | None) -> Any:
    if url is None:
        return None
    from samelog.admin.registry import SchemaRegistry

    try:
        return SchemaRegistry(url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


registry_option = click.option(
    "--registry",
    metavar="URL",
    callback=_registry,
    help="Read values in Confluent's wire format by the schemas of this registry.",
)
"""Gives the command `registry`, a SchemaRegistry or None."""


class OperatorError(click.ClickException):
    """Something for the operator to know, shown as one message without a traceback."""

    exit_code = EXIT_FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on stderr."""
        click.echo("samelog: " + printable(self.message, keep="\n"), file=file or sys.stderr)


class ConfigurationError(OperatorError):
    """A configuration file, or a name on the command line, can't be used."""

    exit_code = EXIT_USAGE


class NoLongerAMember(OperatorError):
    """A node was removed from its cluster."""

    exit_code = EXIT_REMOVED


def fail(message: str) -> NoReturn:
    """End the command with a message and EXIT_FAILED; raises OperatorError."""
    raise OperatorError(message)


@contextmanager
def api_usage() -> Iterator[None]:
    """What the Python API calls a wrong argument is a wrong option here."""
    try:
        yield
    except ValueError as error:
        option = " (--dir)" if "directory is missing" in str(error) else ""
        raise click.UsageError(f"{error}{option}") from error


def talk(message: str) -> None:
    """Say something to the human, on stderr."""
    click.echo(printable(message, keep="\n"), err=True)


def printable(text: str, *, keep: str = "") -> str:
    """`text` with everything escaped that would move the cursor or change the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def print_json(value: object) -> None:
    """One JSON document on stdout; structs, dataclasses and named tuples become objects."""
    click.echo(json.dumps(to_json(value), ensure_ascii=False, indent=2))


def report(value: object, text: str) -> None:
    """What was done: as JSON on stdout, or in words on stderr."""
    if wants_json():
        print_json(value)
    else:
        talk(text)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None
) -> None:
    """A table on stdout: within the width of a terminal, else aligned columns, never cut off."""
    cells = [[printable(str(to_json(cell))) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from samelog.cli.terminal import show_table

        show_table(columns, rows, cells, title)
    else:
        _print_plain(columns, cells, title)


def part() -> None:
    """On a terminal, a line is left free between what was printed and what comes."""
    if sys.stdout.isatty():
        click.echo()


def _print_plain(columns: Sequence[str], cells: list[list[str]], title: str | None) -> None:
    lines = [[column.upper() for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if title:
        click.echo(f"# {title}")
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def utc(ms: int) -> str:
    """A time, to the second; nothing if there is none, the number if no calendar has it."""
    if ms < 0:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)


@contextmanager
def progress(
    label: str, total: float | None, *, unit: str = ""
) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, if that is a terminal, with what is done, the rate and what is left; gives a
    function that advances it by an amount. `unit` "bytes": these are shown as sizes.
    """
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from samelog.cli.progress import Bar

    with Bar(printable(label), total, is_bytes=unit == "bytes") as bar:
        yield bar.advance


@contextmanager
def waiting(
    label: str, *, is_bytes: bool = False
) -> Iterator[Callable[[float, float | None, str], None]]:
    """As `progress`, for what others do: gives a function that is told how much of how much is
    done, and what is done now.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, label: None
        return
    from samelog.cli.progress import Bar

    with Bar(printable(label), None, is_bytes=is_bytes) as bar:
        yield lambda done, total, label: bar.set(done, total, printable(label))


@contextmanager
def following(
    look: Callable[[], tuple[float, float | None, str]], *, is_bytes: bool = True
) -> Iterator[None]:
    """Show on a terminal how far work is that others do while the body waits; `look` gives (done,
    total, what is done now). What is logged meanwhile stays above it.
    """
    if not sys.stderr.isatty():
        yield
        return
    from samelog.cli.progress import Bar, Follower, logged_above

    with logged_above(), Bar("", None, is_bytes=is_bytes) as bar, Follower(bar, look):
        yield
