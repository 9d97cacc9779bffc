"""`samelog topic`: create, list, describe, alter, truncate and delete topics.

Invariant: a change is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import UNSET, structs

from samelog.admin.answers import DeletingTopic, PartitionInfo, TopicDescription, TopicInfo
from samelog.admin.client import ask, ask_each
from samelog.admin.requests import (
    AlterTopic,
    CreatePartitions,
    CreateTopic,
    CreateView,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    TruncatePartition,
)
from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.look.kinds import kinds_of, mirrors_of
from samelog.cli.confirmation import check_confirmed, confirm_option, replaced_option
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import PARTITION, PARTITION_COUNT
from samelog.cli.output import (
    client_option,
    json_option,
    print_json,
    print_table,
    progress,
    report,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.format.nouns import counted
from samelog.placement.defaults import risk_of

KEYED = frozenset(("dedup.key", "cleanup.policy"))
"""Settings of topics whose leaders compare keys with partitions."""


@click.group(cls=CommandGroup)
def command() -> None:
    """Create, list, describe, alter, truncate and delete topics.

    \b
    Examples:
      samelog topic create flights --config client.toml
      samelog topic list --config client.toml --json
    """


@command.command()
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, type=PARTITION_COUNT)
@click.option(
    "--replication-factor",
    "copies",
    type=click.IntRange(min=1, max=7),
    help="How many copies each partition has.  [default: see samelog placement]",
)
@click.option(
    "--colocate-with",
    "other",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Share the group of another topic for good.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@replaced_option("--setting", "--set KEY=VALUE", takes_value=True)
@click.option("--as", "query", metavar="SELECT", help="A view: stores nothing, shows what passes.")
@client_option
@json_option
def create(
    config: ClientConfig,
    *,
    name: str,
    partitions: int,
    copies: int | None,
    other: str | None,
    settings: Sequence[str],
    query: str | None,
) -> None:
    """Create the topic NAME, or a view.

    One partition means one total order of all records. Three copies go on when a node is lost, two
    stand still until it is back, and of one its records are lost.

    With --colocate-with all partitions are in the group of another topic, whose partitions are in
    one group. What is published into both at once is one entry of that group's log. The topics
    move together only, and have as many copies.

    \b
    Example:
      samelog topic create flights --set segment.bytes=67108864 --config client.toml
      samelog topic create audit --set message.timestamp.type=LogAppendTime --config c.toml
      samelog topic create big --partitions 30 --replication-factor 3 --config client.toml
      samelog topic create fills --partitions 4 --colocate-with orders --config client.toml
      samelog topic create big --as "SELECT a, b FROM flights WHERE a > 100" --config client.toml
    """
    if query is not None:
        _create_view(config, name, query)
        return
    wanted = UNSET if copies is None else copies
    there = UNSET if other is None else other
    body = CreateTopic(name, partitions, _settings(settings, "--set"), wanted, there)
    topic = ask(config, body)
    count = counted(topic.partitions, "partition")
    said = "; ".join([f"created topic {topic.name} with {count}", *topic.warnings])
    report(topic, said + _kept(topic.retention_ms) + ORIGINS.get(topic.retention_from, ""))


DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
ORIGINS = {
    "topic": ", by its own settings",
    "policy": ", by the archiving policy of the cluster",
    "none": ": neither its settings nor an archiving policy say so",
}
"""What says for how long records are kept."""


def _kept(retention_ms: int) -> str:
    """For how long records are kept."""
    if retention_ms < 0:
        return "; no record is archived for its age"
    units = ((DAY_MS, "days"), (HOUR_MS, "hours"), (MINUTE_MS, "minutes"), (1, "ms"))
    unit_ms, word = next(each for each in units if retention_ms % each[0] == 0)
    count = retention_ms // unit_ms
    word = word.removesuffix("s") if count == 1 and unit_ms > 1 else word
    return f"; records are archived after {count} {word}"


def _create_view(config: ClientConfig, name: str, query: str) -> None:
    view = ask(config, CreateView(name, query))
    report(view, f"created view {view.name}: {view.query}")


@command.command("add-partitions")
@click.argument("name", shell_complete=complete_topics)
@click.argument("partitions", type=PARTITION_COUNT)
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
    report(topic, f"topic {topic.name} has {counted(topic.partitions, 'partition')}")


@command.command("list")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig) -> None:
    """List all topics and views: what each is, and what differs from the defaults.

    \b
    Example:
      samelog topic list --config client.toml
    """
    found = ask(config, ListTopics())
    topics = sorted(found.topics, key=lambda topic: topic.name)
    if wants_json():
        print_json([*topics, *found.deleting])
    else:
        kinds = kinds_of(topics, mirrors_of(config))
        rows: list[tuple[object, ...]] = [
            (each.name, kinds[each.name], each.partitions, _shown(each)) for each in topics
        ]
        rows += [(each.name, "deleting", "", _waits_for(each)) for each in found.deleting]
        print_table(("topic", "kind", "partitions", "settings"), rows)


@command.command()
@click.argument("name", shell_complete=complete_topics)
@client_option
@json_option
@watchable
def describe(config: ClientConfig, name: str) -> None:
    """Show the topic NAME and its partitions, each as a node sees it that has it.

    \b
    Example:
      samelog topic describe flights --config client.toml
    """
    found = described(config, name)
    if wants_json():
        print_json(found)
        return
    columns = ("partition", "start", "end", "merged durable", "segments", "bytes", "trouble")
    title = f"{found.topic.name} {found.topic.topic_id} {_shown(found.topic)}".rstrip()
    print_table(columns, [_row(partition) for partition in found.partitions], title=title)
    if found.misplaced_keys:
        rows = [
            (each.session, each.partition, f"{each.misplaced} of {each.compared}", each.remedy)
            for each in found.misplaced_keys
        ]
        titles = ("session", "partition", "keys of other partitions", "remedy")
        print_table(titles, rows, title="Equal keys are in several partitions")


def described(config: ClientConfig, name: str) -> TopicDescription:
    """As one node sees it; partitions that others have as the best informed of these does. Raises
    AdminError.
    """
    found = ask(config, DescribeTopic(name))
    is_elsewhere = any(each.elsewhere for each in found.partitions)
    if not is_elsewhere and KEYED.isdisjoint(found.topic.settings):
        return found
    answers = _described_by_each(config, found.topic)
    rows = _best_informed(found, answers) if is_elsewhere else found.partitions
    misplaced = tuple(each for answer in answers for each in answer.misplaced_keys)
    return structs.replace(found, partitions=rows, misplaced_keys=misplaced)


def _best_informed(
    found: TopicDescription, answers: Sequence[TopicDescription]
) -> tuple[PartitionInfo, ...]:
    """Return each partition as the best informed node has it."""
    held = [each for answer in answers for each in answer.partitions if not each.elsewhere]
    best = {each.partition: each for each in sorted(held, key=lambda each: each.end_offset)}
    return tuple(best.get(each.partition, each) for each in found.partitions)


def _described_by_each(config: ClientConfig, topic: TopicInfo) -> list[TopicDescription]:
    """Return how each node describes a topic. Raises AdminError."""
    answers = ask_each(config, DescribeTopic(topic.name))
    found = [each for each in answers if isinstance(each, TopicDescription)]
    return [each for each in found if each.topic.topic_id == topic.topic_id]


@command.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Back to the default.")
@click.option(
    "--replication-factor",
    "copies",
    type=click.IntRange(min=1, max=7),
    help="How many nodes shall have each partition.",
)
@client_option
@json_option
def alter(
    config: ClientConfig,
    *,
    name: str,
    settings: Sequence[str],
    unset: tuple[str, ...],
    copies: int | None,
) -> None:
    """Change settings of the topic NAME, or how many copies it has.

    With --replication-factor its partitions move one by one to nodes that hold so many copies,
    while they are written: `samelog tasks list` shows how far that is. A topic that was made
    without a replication factor is on every node until then.

    \b
    Examples:
      samelog topic alter big --replication-factor 1 --config client.toml
      samelog topic alter flights --set retention.ms=86400000 --config client.toml
      samelog topic alter flights --set hold_groups=billing --unset retention.ms --config c.toml
    """
    if not settings and not unset and copies is None:
        raise click.UsageError("nothing to change: name --set, --unset or --replication-factor")
    wanted = UNSET if copies is None else copies
    body = AlterTopic(name, _settings(settings, "--set"), unset, wanted)
    topic = ask(config, body)
    moves = ""
    if copies is not None:
        risk = f"; {risk_of(copies)}" if risk_of(copies) else ""
        moves = f", {counted(copies, 'copy', 'copies')}: samelog tasks list{risk}"
    report(topic, f"topic {topic.name}: {_shown(topic) or 'only defaults'}{moves}")


@command.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("--partition", type=PARTITION, help="Only this one; else all.")
@confirm_option("NAME")
@replaced_option("--force", "--confirm NAME")
@client_option
@json_option
def truncate(
    config: ClientConfig, *, name: str, partition: int | None, confirm: str | None
) -> None:
    """Empty the topic NAME: its records are deleted for good, without a copy.

    Settings, schemas, sessions and offsets stay: the next record gets the next offset. The audit
    log records the identity that did it. Without --confirm, the command prints how many records
    would be lost.

    \b
    Examples:
      samelog topic truncate flights --config client.toml
      samelog topic truncate flights --confirm flights --config client.toml
      samelog topic truncate flights --partition 2 --confirm flights --config client.toml
    """
    found = described(config, name)
    chosen = range(found.topic.partitions) if partition is None else (partition,)
    which = name if partition is None else f"{name}-{partition}"
    loss = f"{_records(found, chosen)} of {which} would be deleted for good"
    check_confirmed(confirm, name, loss)
    emptied = []
    with progress("emptying", len(chosen)) as advance:
        for each in chosen:
            emptied.append(ask(config, TruncatePartition(name, each, confirm=name)))
            advance(1)
    if wants_json():
        print_json(emptied)
        return
    rows = [(each.partition, each.log_start) for each in emptied]
    print_table(("partition", "begins at"), rows, title=f"topic {name} is empty")


@command.command()
@click.argument("name", shell_complete=complete_topics)
@confirm_option("NAME")
@click.option("--in-use", is_flag=True, help="Also while it is read, written or a mirror.")
@replaced_option("--force", "--confirm NAME, and --in-use for a topic that is read")
@client_option
@json_option
def delete(config: ClientConfig, *, name: str, confirm: str | None, in_use: bool) -> None:
    """Delete the topic NAME with all its records, for good.

    Without --confirm, the command prints how many records would be lost. The cluster refuses a
    topic with connected subscribers, members of consumer groups, or publishers that have not
    closed, and a mirror; --in-use overrides that. The name is free at once. If a data group of the
    topic has no majority, the command fails after a while, and `topic list` shows the topic as
    deleting until the group is back.

    \b
    Examples:
      samelog topic delete flights --config client.toml
      samelog topic delete flights --confirm flights --config client.toml
      samelog topic delete flights --confirm flights --in-use --config client.toml
    """
    if confirm != name:
        check_confirmed(confirm, name, _loss(config, name))
    topic_id = ask(config, DeleteTopic(name, in_use=in_use, confirm=name)).topic_id
    report({"name": name, "topic_id": topic_id}, f"deleted topic {name}")


def _loss(config: ClientConfig, name: str) -> str:
    """What is lost with a topic or view."""
    found = described(config, name)
    if found.topic.base:
        return f"View {name} would be deleted; the topic {found.topic.base} stays"
    records = _records(found, range(found.topic.partitions))
    return f"Topic {name} with {records} would be deleted for good"


def _records(found: TopicDescription, partitions: Sequence[int]) -> str:
    chosen = [each for each in found.partitions if each.partition in partitions]
    return counted(sum(each.end_offset - each.start_offset for each in chosen), "record")


def _settings(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, _) in zip(texts, pairs, strict=True):
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return {key: value for key, _, value in pairs}


def _waits_for(topic: DeletingTopic) -> str:
    """Which data groups have yet to drop a deleted topic."""
    which = ", ".join(map(str, topic.groups))
    return f"group {which} has to drop it" if len(topic.groups) == 1 else f"groups {which} have to"


def _shown(topic: TopicInfo) -> str:
    if topic.base:
        return f"view: {topic.query}"
    return " ".join(f"{key}={value}" for key, value in sorted(topic.settings.items()))


def _row(partition: PartitionInfo) -> tuple[object, ...]:
    return (
        partition.partition,
        partition.start_offset,
        partition.end_offset,
        partition.merged_offset,
        partition.segments,
        partition.size_bytes,
        _trouble(partition),
    )


def _trouble(partition: PartitionInfo) -> str:
    if partition.unread:
        unread = counted(partition.unread, "record")
        return f"{unread} unread, the last at {partition.newest_unread}"
    return partition.halted or (f"on {partition.elsewhere}" if partition.elsewhere else "")
