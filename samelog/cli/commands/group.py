"""`samelog group`: list, describe and reset consumer groups.

Invariant: a reset is reported as done only when a majority of the nodes has it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, astuple, replace

from samelog.admin.answers import GroupDescription, GroupMemberInfo, GroupPartition, GroupRow
from samelog.admin.client import ask, ask_each
from samelog.admin.errors import AdminError
from samelog.admin.group_answers import ProcessedOffsets
from samelog.admin.group_requests import GetProcessedOffset
from samelog.admin.requests import (
    DescribeGroup,
    DescribeTopic,
    ListGroups,
    ResetGroup,
    ResetTo,
)
from samelog.cli.command_group import CommandGroup
from samelog.cli.live_names import complete_groups, complete_topics
from samelog.cli.numbers import PARTITION
from samelog.cli.output import (
    client_option,
    json_option,
    print_json,
    print_table,
    utc,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.format.arguments import parse_digits, shown
from samelog.format.numbers import OFFSETS
from samelog.wire.errors import FaultCode

SHIFT = click.IntRange(1 - (1 << 62), (1 << 62) - 1, clamp=True)
"""A shift stays within the log, so that larger numbers mean the same."""
ENDS: tuple[ResetTo, ...] = ("earliest", "latest")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, describe and reset consumer groups; show how far they have come.

    \b
    Examples:
      samelog group list --config client.toml
      samelog group describe billing --config client.toml --json
      samelog group processed flights billing --config client.toml
      samelog group reset billing --topic flights --to earliest --config client.toml
    """


@command.command("list")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig) -> None:
    """List all groups.

    \b
    Example:
      samelog group list --config client.toml
    """
    groups = sorted(group_rows(config), key=lambda each: each.group)
    if wants_json():
        print_json([asdict(each) for each in groups])
    else:
        columns = ("group", "state", "type", "protocol", "members", "generation", "lag")
        rows = [(*astuple(each)[: len(columns) - 1], _lag_text(each)) for each in groups]
        print_table(columns, rows)


def group_rows(config: ClientConfig) -> list[GroupRow]:
    """All groups, with their lag on whichever nodes have the partitions. Raises AdminError."""
    return [
        _with_all_lag(config, each) if each.elsewhere else each
        for each in ask(config, ListGroups()).groups
    ]


def _with_all_lag(config: ClientConfig, row: GroupRow) -> GroupRow:
    """A group with the lag of all partitions; `elsewhere` counts those that no node answers for."""
    found = _described(config, row.group).partitions
    missing = sum(1 for each in found if each.elsewhere)
    return replace(row, lag=sum(each.lag for each in found), elsewhere=missing)


def _lag_text(row: GroupRow) -> str:
    return f">= {row.lag}" if row.elsewhere else str(row.lag)


@command.command()
@click.argument("group", shell_complete=complete_groups)
@client_option
@json_option
@watchable
def describe(config: ClientConfig, group: str) -> None:
    """Show the members of GROUP, and how far it has come.

    Lag is the number of records from the committed offset on, which is the offset of the next
    record to read. For an assigned partition without a committed offset ("-"), it is the number of
    all records in the partition.

    \b
    Example:
      samelog group describe billing --config client.toml
    """
    _show(_described(config, group))


def _described(config: ClientConfig, group: str) -> GroupDescription:
    """As the coordinator knows it, which has heard of the members; else as any node does. How far
    it is behind say the nodes that have the partitions. Raises AdminError.
    """
    try:
        found = ask(config, DescribeGroup(group, by_coordinator=True))
    except AdminError:
        found = ask(config, DescribeGroup(group))
    if not any(each.elsewhere for each in found.partitions):
        return found
    answers = ask_each(config, DescribeGroup(group))
    rows = [
        row for each in answers if isinstance(each, GroupDescription) for row in each.partitions
    ]
    ends = {
        (row.topic, row.partition): row
        for row in sorted(rows, key=lambda row: row.end)
        if not row.elsewhere
    }
    known = (_with_ends(row, ends.get((row.topic, row.partition))) for row in found.partitions)
    return replace(found, partitions=tuple(known))


def _with_ends(row: GroupPartition, held: GroupPartition | None) -> GroupPartition:
    """What a group committed, and where the partition ends on a node that has it."""
    if not row.elsewhere or held is None:
        return row
    lag = max(0, held.end - max(row.committed, held.begin))
    return replace(row, begin=held.begin, end=held.end, lag=lag, elsewhere="")


@command.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("name", shell_complete=complete_groups)
@client_option
@json_option
@watchable
def processed(config: ClientConfig, topic: str, name: str) -> None:
    """Show how far NAME has come in TOPIC: a group, or a subscriber with this name.

    The offset is that of the next record to be dealt with.

    \b
    Example:
      samelog group processed flights billing --config client.toml
    """
    found = _processed(config, name, topic)
    if wants_json():
        parts = [
            {
                "partition": each.partition,
                "offset": None if each.offset < 0 else each.offset,
                "lag": each.lag,
                "at": _time(each.at_ms),
            }
            for each in found.partitions
        ]
        print_json({"topic": found.topic, "name": name, "partitions": parts})
        return
    rows = [
        (
            each.partition,
            "" if each.offset < 0 else each.offset,
            "" if each.lag is None else each.lag,
            _shown_time(each.at_ms),
        )
        for each in found.partitions
    ]
    print_table(("partition", "offset", "lag", "at"), rows)


def _processed(config: ClientConfig, name: str, topic: str) -> ProcessedOffsets:
    """How far it is behind say the nodes that have the partitions. Raises AdminError."""
    found = ask(config, GetProcessedOffset(name, topic))
    if not any(each.lag is None for each in found.partitions):
        return found
    answers = ask_each(config, GetProcessedOffset(name, topic))
    lags = {
        row.partition: row.lag
        for each in answers
        if isinstance(each, ProcessedOffsets)
        for row in each.partitions
        if row.lag is not None
    }
    rows = (
        replace(row, lag=lags.get(row.partition)) if row.lag is None else row
        for row in found.partitions
    )
    return replace(found, partitions=tuple(rows))


@command.command()
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic", required=True, shell_complete=complete_topics, help="Whose offsets are set."
)
@click.option("--partition", type=PARTITION, help="Only this one; else all.")
@click.option("--to", metavar="earliest|latest|OFFSET", help="The next record to be read.")
@click.option(
    "--to-datetime",
    "moment",
    metavar="TIME",
    help="The first one of this time (ISO 8601) or later.",
)
@click.option("--shift-by", "shift", type=SHIFT, metavar="N", help="So many on; back, if negative.")
@client_option
@json_option
def reset(
    config: ClientConfig,
    *,
    group: str,
    topic: str,
    partition: int | None,
    to: str | None,
    moment: str | None,
    shift: int | None,
) -> None:
    """Have GROUP go on elsewhere. It must have no members; one that does not exist begins.

    One of --to, --to-datetime (UTC unless it says; the end where nothing is that late) and
    --shift-by (never beyond what is there) says where. All partitions are set at once; but where no
    node has all of them, one after the other: if one cannot be, it is said which are.

    \b
    Examples:
      samelog group reset billing --topic flights --to earliest --config client.toml
      samelog group reset billing --topic flights --partition 2 --to 1500 --config client.toml
      samelog group reset billing --topic flights --to-datetime 2026-11-20T08:00 \\
        --config client.toml
      samelog group reset billing --topic flights --shift-by -100 --config client.toml
    """
    if (to is not None) + (moment is not None) + (shift is not None) != 1:
        raise click.UsageError("one of --to, --to-datetime and --shift-by is needed")
    where, offset = _target(to, moment, shift)
    chosen = UNSET if partition is None else partition
    body = ResetGroup(group, topic, where, partition=chosen, offset=offset)
    _reset(config, body)
    _show(_described(config, group))


def _reset(config: ClientConfig, body: ResetGroup) -> None:
    """At once where a node has all that is to be reset; else partition by partition. Raises
    AdminError, which says what is done if that is not all.
    """
    known = ask(config, DescribeTopic(body.topic)).partitions
    is_spread = body.partition is UNSET and any(each.elsewhere for each in known)
    try:
        ask(config, body)
    except AdminError as error:
        if not is_spread or error.code is not FaultCode.OUT_OF_RANGE:
            raise
        _reset_each(config, body, [each.partition for each in known])


def _reset_each(config: ClientConfig, body: ResetGroup, left: Sequence[int]) -> None:
    for done, partition in enumerate(left):
        try:
            ask(config, replace(body, partition=partition))
        except AdminError as error:
            if not done:
                raise
            raise _half_done(error, body, left[:done], left[done:]) from error


def _half_done(
    error: AdminError, body: ResetGroup, done: Sequence[int], left: Sequence[int]
) -> AdminError:
    """What to do next: who goes on from where it is would go twice as far."""
    again = "with --partition for each of these" if body.to == "shift" else "the same command"
    text = (
        f"partition {left[0]}: {error}. Partitions {_some(done)} of {body.topic!r} are reset, "
        f"{_some(left)} are not. Reset the rest by {again}"
    )
    return AdminError(text, code=error.code, sent=error.sent)


def _some(numbers: Sequence[int]) -> str:
    """Partitions, for a sentence: neighbours as one range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)


def _target(
    to: str | None, moment: str | None, shift: int | None
) -> tuple[ResetTo, int | UnsetType]:
    if to is not None:
        return _end_or_offset(to)
    if moment is not None:
        return "time", _milliseconds(moment)
    return "shift", shift or 0


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time such as 2026-11-20T08:00"
        raise click.BadParameter(message, param_hint="--to-datetime") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _end_or_offset(text: str) -> tuple[ResetTo, int | UnsetType]:
    offset = parse_digits(text, OFFSETS)
    if offset is not None:
        return "offset", offset
    for end in ENDS:
        if text == end:
            return end, UNSET
    message = f"{shown(text)} is neither earliest nor latest nor an offset"
    raise click.BadParameter(message, param_hint="--to")


def _show(found: GroupDescription) -> None:
    owners = _owners(found)
    if wants_json():
        print_json(_as_tree(found, owners))
        return
    info = found.group
    title = f"{info.group} {info.state} generation {info.generation} {info.protocol}".rstrip()
    names = ("topic", "partition", "begin", "end", "committed", "lag", "member", "trouble")
    print_table(names, [_row(each, owners) for each in found.partitions], title=title)
    if found.members:
        columns = ("member", "instance", "client", "host", "joined", "rebalanced", "polled")
        print_table(columns, [_member_row(each) for each in found.members])


def _owners(found: GroupDescription) -> dict[tuple[str, int], str]:
    """(topic, partition) -> the member that has it."""
    return {place: member.member_id for member in found.members for place in member.partitions}


def _row(each: GroupPartition, owners: dict[tuple[str, int], str]) -> tuple[object, ...]:
    owner = owners.get((each.topic, each.partition), "")
    committed = "-" if each.committed < 0 else each.committed
    place = each.topic, each.partition
    if each.elsewhere:
        return (*place, "-", "-", committed, "-", owner, f"no answer from {each.elsewhere}")
    return (*place, each.begin, each.end, committed, each.lag, owner, "")


def _member_row(member: GroupMemberInfo) -> tuple[object, ...]:
    times = (member.joined_ms, member.moved_ms, member.polled_ms)
    named = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    return (*named, *map(_shown_time, times))


def _as_tree(found: GroupDescription, owners: dict[tuple[str, int], str]) -> dict[str, object]:
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "identity": member.identity or None,
            "joined_at": _time(member.joined_ms),
            "rebalanced_at": _time(member.moved_ms),
            "heard_at": _time(member.heard_ms),
            "polled_at": _time(member.polled_ms),
            "partitions": sorted(p for p, owner in owners.items() if owner == member.member_id),
        }
        for member in found.members
    ]
    partitions = [
        {
            **asdict(each),
            "committed": None if each.committed < 0 else each.committed,
            "lag": None if each.elsewhere else each.lag,
            "committed_at": _time(each.committed_at_ms),
            "member_id": owners.get((each.topic, each.partition)),
        }
        for each in found.partitions
    ]
    return {**asdict(found.group), "members": members, "partitions": partitions}


def _shown_time(at_ms: int) -> str:
    """Shorter where people look: it may break between day and time."""
    return utc(at_ms) if sys.stdout.isatty() else _time(at_ms) or ""


def _time(at_ms: int) -> str | None:
    return None if at_ms < 0 else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
