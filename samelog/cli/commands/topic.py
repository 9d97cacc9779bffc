"""`samelog topic`: create, list, describe, alter and delete topics.

Invariant: a change is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from samelog.admin.answers import PartitionInfo, TopicInfo
from samelog.admin.client import ask, ask_each
from samelog.admin.requests import (
    AlterTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeGroup,
    DescribeTopic,
    ListGroups,
    ListSubscribers,
    ListTopics,
)
from samelog.admin.views import Subscribers
from samelog.cli.commands.pipeline.common import client_file_option
from samelog.cli.commands.schema.rows import print_rows
from samelog.cli.commands.subscribe import as_line, as_value
from samelog.cli.output import (
    client_option,
    confirm,
    fail,
    json_option,
    print_json,
    print_table,
    report,
    wants_json,
)
from samelog.config.tables.client import ClientConfig
from samelog.format._kernels import decode_records
from samelog.format.compression import decompress
from samelog.runtime.network.tls import NODE_PREFIX
from samelog.spark.logs.nodes import Nodes, RemoteLogs
from samelog.spark.plan.offsets import OffsetRange, PartitionName
from samelog.typed.filters.selection import RowsWanted

PEEK_TIMEOUT_S = 10.0


@click.group()
def command() -> None:
    """Create, list, describe, alter and delete topics.

    \b
    Examples:
      samelog topic create flights --config client.toml
      samelog topic list --config client.toml --json
    """


@command.command()
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--setting", "settings", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@client_option
@json_option
def create(config: ClientConfig, *, name: str, partitions: int, settings: Sequence[str]) -> None:
    """Create the topic NAME.

    One partition means one total order of all records.

    \b
    Example:
      samelog topic create flights --setting segment.bytes=67108864 --config client.toml
      samelog topic create audit --setting message.timestamp.type=LogAppendTime --config c.toml
    """
    body = CreateTopic(name, partitions, _settings(settings, "--setting"))
    topic = ask(config, body)
    report(topic, f"created topic {topic.name} with {topic.partitions} partition(s)")


@command.command("add-partitions")
@click.argument("name")
@click.argument("partitions", type=click.IntRange(min=1))
@client_option
@json_option
def add_partitions(config: ClientConfig, *, name: str, partitions: int) -> None:
    """Let the topic NAME have PARTITIONS partitions in all; it never gets fewer.

    Records with a key go to another partition than before, whoever publishes them: the order of one
    key holds within each partition only.

    \b
    Example:
      samelog topic add-partitions flights 4 --config client.toml
    """
    topic = ask(config, CreatePartitions(name, partitions))
    report(topic, f"topic {topic.name} has {topic.partitions} partition(s)")


@command.command("list")
@client_option
@json_option
def list_command(config: ClientConfig) -> None:
    """List all topics.

    \b
    Example:
      samelog topic list --config client.toml
    """
    topics = sorted(ask(config, ListTopics()).topics, key=lambda topic: topic.name)
    if wants_json():
        print_json(topics)
    else:
        rows = [(topic.name, topic.partitions, _shown(topic)) for topic in topics]
        print_table(("topic", "partitions", "settings"), rows)


@command.command()
@click.argument("name")
@client_option
@json_option
def describe(config: ClientConfig, name: str) -> None:
    """Show the topic NAME and its partitions, as one node sees them.

    \b
    Example:
      samelog topic describe flights --config client.toml
    """
    found = ask(config, DescribeTopic(name))
    if wants_json():
        print_json(found)
        return
    columns = ("partition", "start", "end", "merged durable", "segments", "bytes", "trouble")
    title = f"{found.topic.name} {found.topic.topic_id} {_shown(found.topic)}".rstrip()
    print_table(columns, [_row(partition) for partition in found.partitions], title=title)


@command.command()
@click.argument("name")
@click.option("--partition", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--offset", type=click.IntRange(min=0), help="From this one on; else the oldest.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest N records.")
@click.option("--max", "limit", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--rows", "as_rows", is_flag=True, help="As rows of the topic's schema.")
@click.option("--version", type=click.IntRange(min=1), help="Of this one; else the newest.")
@click.option("--where", metavar="CONDITION", help="With --rows: of those, the ones that meet it.")
@click.option("--columns", metavar="A,B", help="With --rows: these columns.")
@client_file_option
@json_option
def peek(
    *,
    config: str,
    name: str,
    partition: int,
    offset: int | None,
    last: int | None,
    limit: int,
    as_rows: bool,
    version: int | None,
    where: str | None,
    columns: str | None,
) -> None:
    """Print some records of the topic NAME as the nodes have them: values, or JSON objects with all
    there is. Nothing is copied or kept.

    With --rows, each record is read by the version of the schema that it was written with, and
    printed as a row of another: a JSON object. The exit code is 1 if one cannot be read.

    \b
    Examples:
      samelog topic peek flights --config client.toml
      samelog topic peek flights --last 3 --json --config client.toml
      samelog topic peek flights --partition 2 --offset 1500 --max 20 --config client.toml
      samelog topic peek ticks --rows --where "price > 100" --config client.toml
    """
    if offset is not None and last is not None:
        raise click.UsageError("either --offset or --last")
    if not as_rows and (version, where, columns) != (None, None, None):
        raise click.UsageError("--version, --where and --columns are for --rows")
    rows = RowsWanted(where, None if columns is None else columns.split(","))
    nodes = Nodes(config, timeout_s=PEEK_TIMEOUT_S)
    try:
        whole = _whole(nodes, PartitionName(name, partition))
        first = whole.start if offset is None else offset
        if last is not None:
            first, limit = max(whole.start, whole.end - last), last
        if first >= whole.end:
            fail(f"{whole.name} has the offsets from {whole.start} to {whole.end}, without the end")
        wanted = whole._replace(start=first, end=min(whole.end, first + limit))
        if as_rows:
            print_rows(config, nodes, wanted, version, rows)
        else:
            _print_records(nodes, wanted)
    finally:
        nodes.close()


def _whole(nodes: Nodes, name: PartitionName) -> OffsetRange:
    """All that a partition has."""
    state = RemoteLogs(nodes).topic_states([name.topic]).get(name.topic)
    if state is None:
        fail(f"there is no topic {name.topic!r}")
    bounds = state.partitions.get(name.partition)
    if bounds is None:
        fail(
            f"{name.topic!r} has {len(state.partitions)} partitions, no partition {name.partition}"
        )
    return OffsetRange(name, state.topic_id, bounds.start, bounds.end)


def _print_records(nodes: Nodes, wanted: OffsetRange) -> None:
    show = as_line if wants_json() else as_value
    for chunk in nodes.read(wanted):
        for record in decode_records(chunk.data, 0, chunk.size, *wanted.name, decompress):
            if wanted.start <= record.offset < wanted.end:
                click.echo(show(record))


@command.command()
@click.argument("name")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Back to the default.")
@client_option
@json_option
def alter(
    config: ClientConfig, *, name: str, settings: Sequence[str], unset: tuple[str, ...]
) -> None:
    """Change settings of the topic NAME.

    \b
    Examples:
      samelog topic alter flights --set retention.ms=86400000 --config client.toml
      samelog topic alter flights --set hold_groups=billing --unset retention.ms --config c.toml
    """
    if not settings and not unset:
        raise click.UsageError("nothing to change: name --set or --unset")
    body = AlterTopic(name, _settings(settings, "--set"), unset)
    topic = ask(config, body)
    report(topic, f"topic {topic.name}: {_shown(topic) or 'only defaults'}")


@command.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Ask nothing, and do not look for readers.")
@client_option
@json_option
def delete(config: ClientConfig, *, name: str, force: bool) -> None:
    """Delete the topic NAME, with everything in it, for good.

    It is refused while subscribers or consumer groups read the topic. On a terminal it is asked for
    once more.

    \b
    Examples:
      samelog topic delete flights --config client.toml
      samelog topic delete flights --force --config client.toml
    """
    if not force:
        if readers := _readers(config, name):
            fail(f"topic {name} is read by {', '.join(readers)}: end them, or give --force")
        confirm(f"Delete topic {name} and all its records, for good?")
    topic_id = ask(config, DeleteTopic(name)).topic_id
    report({"name": name, "topic_id": topic_id}, f"deleted topic {name}")


def _readers(config: ClientConfig, topic: str) -> list[str]:
    """Who reads a topic now: at the nodes that answer, and in groups that have members."""
    members = [each.group for each in ask(config, ListGroups()).groups if each.members]
    groups = [f"group {group}" for group in members if _reads(config, group, topic)]
    return groups + sorted(_subscribers(config, topic))


def _subscribers(config: ClientConfig, topic: str) -> set[str]:
    rows = [row for answer in _answers(config) for row in answer.subscribers]
    found = {row.identity for row in rows if any(each.topic == topic for each in row.partitions)}
    return {each for each in found if not each.startswith(NODE_PREFIX)}


def _answers(config: ClientConfig) -> list[Subscribers]:
    """Of the nodes that run; where one does not say who reads there, it may be anybody."""
    answers: list[Subscribers] = []
    for each in ask_each(config, ListSubscribers()):
        if isinstance(each, Subscribers):
            answers.append(each)
        elif not each.nobody_there:
            fail(f"a node did not say who reads there: {each}: try again, or give --force")
    return answers


def _reads(config: ClientConfig, group: str, topic: str) -> bool:
    partitions = ask(config, DescribeGroup(group)).partitions
    return any(each.topic == topic for each in partitions)


def _settings(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, _) in zip(texts, pairs, strict=True):
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return {key: value for key, _, value in pairs}


def _shown(topic: TopicInfo) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(topic.settings.items()))


def _row(partition: PartitionInfo) -> tuple[object, ...]:
    return (
        partition.partition,
        partition.start_offset,
        partition.end_offset,
        partition.merged_offset,
        partition.segments,
        partition.size_bytes,
        partition.halted,
    )
