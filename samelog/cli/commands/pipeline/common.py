"""What the pipelines' commands share: options of Spark and of the cluster, progress, topics.

Options of type path that name a lake or a checkpoint are URLs of Hadoop's file systems, so they are
not looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, ListTopics
from samelog.cli.output import CommandT, json_option, progress
from samelog.config.load import load_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from samelog.spark.pipelines.running import QueryProgress


path_option = click.option(
    "--path", required=True, metavar="URL", help="Of the lake: hdfs://…, file:///…, or a path."
)
checkpoint_option = click.option(
    "--checkpoint",
    metavar="URL",
    help="Where Spark notes how far it is; default: within the lake, in _checkpoint.",
)


def pairs(ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """A callback for options that are KEY=VALUE and may be repeated."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        found[key] = value
    return found


def trigger_option(default: str) -> Callable[[CommandT], CommandT]:
    """Gives the command `trigger`."""
    return click.option(
        "--trigger",
        default=default,
        show_default=True,
        metavar="WHEN",
        help='How often: "30 seconds"; or available-now: what there is, then end.',
    )


def spark_options(function: CommandT) -> CommandT:
    """Gives the command `master` and `conf`, and --json."""
    function = json_option(function)
    function = click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A setting of Spark's, as spark-submit's; may be repeated.",
    )(function)
    return click.option(
        "--master", metavar="URL", help="Spark's; default: what spark-submit says, else local[*]."
    )(function)


@contextmanager
def session(name: str, master: str | None, conf: dict[str, str]) -> Iterator[SparkSession]:
    """A session of Spark. Raises NoSpark, PipelineError."""
    from samelog.spark.pipelines.session import check_installed, spark_session

    check_installed()
    from samelog.spark.pipelines.running import spark_errors

    with spark_errors(), spark_session(f"samelog {name}", master=master, conf=conf) as spark:
        yield spark


def wait_for_end(query: StreamingQuery, label: str) -> QueryProgress:
    """Wait until a query ends; show its progress on stderr if that is a terminal."""
    from samelog.spark.pipelines import running

    shown = 0
    with progress(label, None) as advance:

        def show(found: Any) -> None:
            nonlocal shown
            advance(found.rows - shown)
            shown = found.rows

        return running.wait_for_end(query, show)


def ensure_topic(path: str, name: str, partitions: int = 1) -> None:
    """Create a topic if it is not there. Raises InvalidName, AdminError."""
    config = load_client(path)
    topics = ask(config, ListTopics()).topics
    if all(topic.name != name for topic in topics):
        ask(config, CreateTopic(name, partitions, {}))
