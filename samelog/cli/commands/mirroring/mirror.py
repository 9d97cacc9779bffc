"""`samelog mirror`: topics of another cluster as read-only topics of this one (docs/mirror.md).

Invariant: a promotion is reported only once it is committed; an unknown lag is shown as unknown.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from samelog.admin.client import ask
from samelog.admin.mirror_answers import MirroredPartition, MirrorInfo, SourceState, SourceTopic
from samelog.admin.mirror_requests import LeaveGap, ListMirrors, PromoteTopics
from samelog.admin.mirrors import all_mirrors
from samelog.cli.command_group import CommandGroup
from samelog.cli.confirmation import check_confirmed, confirm_option, replaced_option
from samelog.cli.live_names import complete_mirrors
from samelog.cli.numbers import END_OFFSET
from samelog.cli.output import (
    ConfigPlace,
    client_option,
    fail,
    following,
    json_option,
    print_json,
    print_table,
    talk,
    utc,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.load import load_client, load_mirror
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.mirror import MirrorConfig
from samelog.placement.cluster_ids import root_of

if TYPE_CHECKING:
    from samelog.mirror.stops import MirrorStop

UNKNOWN = "unknown"


def _load(context: click.Context, parameter: click.Parameter, path: str) -> MirrorConfig:
    return load_mirror(path)


mirror_option = click.option(
    "--config",
    required=True,
    type=ConfigPlace("FILE", "Name the sidecar's mirror.toml by --config FILE (docs/mirror.md)."),
    callback=_load,
    help="The sidecar's mirror.toml (docs/configuration.md).",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Keep topics of another cluster as mirrors: the same bytes at the same offsets.

    \b
    Examples:
      samelog mirror run --config mirror.toml
      samelog mirror status --config mirror.toml
      samelog mirror promote eu.flights --config client.toml
    """


@command.command()
@mirror_option
def run(config: MirrorConfig) -> None:
    """Mirror topics until a signal arrives, or up to the end that `until` sets.

    The process may be killed at any time: the next one continues at the ends of the mirrors. With
    `until`, it exits with status 0 once everything up to there is mirrored. A terminal shows the
    numbers of mirrored offsets and of all offsets.

    \b
    Example:
      samelog mirror run --config mirror.toml
    """
    from samelog.mirror.starting import serve_mirror
    from samelog.runtime.log import start_log
    from samelog.runtime.loop import run as run_loop

    start_log(config.log_level)
    is_over = run_loop(serve_mirror(config, talk, partial(following, is_bytes=False)))
    if is_over:
        talk("everything up to the end is mirrored")


class _Row(NamedTuple):
    """One partition of a mirror."""

    mirror: str
    partition: int
    source: str
    mirrored: int
    end: int | None
    lag: int | None
    state: str


@command.command()
@mirror_option
@json_option
@watchable
def status(config: MirrorConfig) -> None:
    """Show how far the mirrors of a sidecar are, and what differs from the source.

    The command queries both clusters. It reads from the sidecar's directory why a partition has
    stopped, and at which batch: run it on the sidecar's host. While the source does not answer, the
    lag is unknown. A transaction that was open before a gap holds back readers of committed
    records, because its end may be lost.

    \b
    Example:
      samelog mirror status --config mirror.toml
    """
    mirrors = all_mirrors(load_client(config.destination))[0].mirrors
    source, problem = asyncio.run(_source_state(config))
    topics = None if source is None else {each.topic: each for each in source.topics}
    root = None if source is None else root_of(source.cluster_id)
    ours = [each for each in mirrors if root in (None, each.cluster_id)]
    _show(_Shown(problem, *_compared(ours, topics, _stops(config.directory))))


def _stops(directory: str) -> Mapping[str, MirrorStop]:
    """Return the stops that the sidecar has recorded, as far as they can be read."""
    from samelog.format.errors import LogFormatError
    from samelog.mirror.stops import read_stops
    from samelog.store.disk.disk_errors import DiskFault

    problem = f"{directory} is not a directory of this host"
    if os.path.isdir(directory):
        try:
            return read_stops(directory)
        except (LogFormatError, DiskFault) as error:
            problem = str(error)
    talk(f"why partitions have stopped is not known ({problem}): see the sidecar's log or /status")
    return {}


class _Shown(NamedTuple):
    """The output of `status`. `settings`: by mirror, those that differ, here and at the source."""

    source_problem: str
    partitions: list[_Row]
    settings: dict[str, dict[str, tuple[Any, Any]]]


def _compared(
    mirrors: Sequence[MirrorInfo],
    topics: Mapping[str, SourceTopic] | None,
    stops: Mapping[str, MirrorStop],
) -> tuple[list[_Row], dict[str, dict[str, tuple[Any, Any]]]]:
    """Return the rows, and the settings that differ. `topics`: the chosen topics of the source;
    None if the source does not answer. `stops`: those that the sidecar has recorded.
    """
    rows, differences = [], {}
    for each in mirrors:
        source = None if topics is None else topics.get(each.source_topic)
        state = _state(each, source, is_known=topics is not None)
        if source is not None and source.log_id != each.log_id:
            source = None
        rows += _rows(each, source, state, stops)
        differences[each.topic] = _differences(each, source)
    return rows, differences


def _show(shown: _Shown) -> None:
    if wants_json():
        rows = [row._asdict() for row in shown.partitions]
        print_json({**shown._asdict(), "partitions": rows})
        return
    if shown.source_problem:
        talk(f"the source does not answer: {shown.source_problem}")
    cells = [tuple(UNKNOWN if cell is None else cell for cell in row) for row in shown.partitions]
    print_table(("mirror", "partition", "source", "mirrored", "end", "lag", "state"), cells)
    _say_differences(shown.settings)


def _say_differences(settings: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> None:
    for topic, differing in settings.items():
        for key, (here, there) in differing.items():
            talk(f"{topic}: {key} is {here or 'not set'}, at the source {there or 'not set'}")


async def _source_state(config: MirrorConfig) -> tuple[SourceState | None, str]:
    """Return the state of the source, or None and the problem."""
    from samelog.mirror.errors import MirrorError
    from samelog.mirror.starting import source_of

    source = source_of(config)
    try:
        return await source.state(config.topics, ()), ""
    except MirrorError as error:
        return None, str(error)
    finally:
        await source.close()


def _state(mirror: MirrorInfo, source: SourceTopic | None, *, is_known: bool) -> str:
    """Return whether a topic is a mirror, or why it has stopped. `is_known`: the source answers."""
    if mirror.promoted_ms >= 0:
        return f"promoted {utc(mirror.promoted_ms)}"
    if mirror.is_ending:
        return "being promoted"
    if is_known and source is None:
        return "mirror; the source has no such topic, or mirror.toml does not choose it"
    if source is not None and source.log_id != mirror.log_id:
        return "stopped: the source was reset, or its topic recreated"
    return "mirror"


def _rows(
    mirror: MirrorInfo, source: SourceTopic | None, state: str, stops: Mapping[str, MirrorStop]
) -> list[_Row]:
    """Return a row for each partition. `source`: the mirrored log; None if it is unknown."""
    ends = (
        {} if source is None else {each.partition: each.next_offset for each in source.partitions}
    )
    is_mirror = mirror.promoted_ms < 0
    rows = []
    for each in mirror.partitions:
        end = ends.get(each.partition)
        lag = None if end is None or not is_mirror else max(0, end - each.next_offset)
        numbers = each.next_offset, end, lag
        where = mirror.topic, each.partition, mirror.source_topic
        text = _stop_reason(mirror, each, stops) or state
        is_ahead = is_mirror and end is not None and end < each.next_offset
        ahead = ", and the source ends below it" if is_ahead else ""
        rows.append(_Row(*where, *numbers, f"{text}{ahead}{_left_open(each)}"))
    return rows


def _stop_reason(
    mirror: MirrorInfo, partition: MirroredPartition, stops: Mapping[str, MirrorStop]
) -> str | None:
    """Return why the sidecar has stopped a partition that has made no progress since."""
    stop = stops.get(f"{mirror.topic}/{partition.partition}")
    place = mirror.topic_id, mirror.log_id, partition.next_offset
    if mirror.promoted_ms >= 0 or stop is None or not stop.is_at(*place):
        return None
    return f"stopped: {stop.reason}"


def _left_open(partition: MirroredPartition) -> str:
    if partition.left_open is None:
        return ""
    return f", a transaction is open since {partition.left_open}, before a gap"


def _differences(mirror: MirrorInfo, source: SourceTopic | None) -> dict[str, tuple[Any, Any]]:
    """Return by setting the values here and at the source, where they differ."""
    if source is None:
        return {}
    keys = sorted(mirror.settings.keys() | source.settings.keys())
    both = ((key, mirror.settings.get(key), source.settings.get(key)) for key in keys)
    return {key: (here, there) for key, here, there in both if here != there}


@command.command()
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_mirrors)
@confirm_option("TOPIC", multiple=True)
@replaced_option("--yes", "--confirm with each argument")
@client_option
@json_option
def promote(config: ClientConfig, *, topics: tuple[str, ...], confirm: tuple[str, ...]) -> None:
    """Turn mirrors into ordinary topics, all of them at once.

    A name may end with `*`. Records that are not mirrored yet never arrive, because the sidecar
    stops mirroring a promoted topic. Open transactions in the mirrored records are aborted.

    \b
    Examples:
      samelog mirror promote eu.flights --config client.toml
      samelog mirror promote 'eu.*' --confirm 'eu.*' --config client.toml
    """
    names, strangers = _promotable(config, topics)
    if strangers and not confirm:
        fail(f"{', '.join(strangers)}: not a mirror. Look with: samelog topic list")
    for topic in topics:
        given = topic if topic in confirm else next(iter(confirm), None)
        loss = f"{', '.join(names)} would stop being mirrors, for good"
        check_confirmed(given, topic, loss)
    promoted = ask(config, PromoteTopics(tuple(names), confirm=",".join(names))).promoted
    if wants_json():
        print_json(promoted)
        return
    rows = [(name, index, end) for name, ends in promoted.items() for index, end in enumerate(ends)]
    print_table(("topic", "partition", "its own from"), rows)


@command.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.option("--to", "to", type=END_OFFSET, required=True, help="Offset to continue at.")
@mirror_option
def skip(config: MirrorConfig, partition: str, to: int) -> None:
    """Leave a gap in a mirror, from its end to an offset.

    Use it for a batch of the source that nodes cannot store. `mirror status` on the sidecar's host,
    and the sidecar's log and /status, name the batch and the offset behind it. Records in the gap
    are never mirrored. An offset beyond the end of the source is refused if the source answers.

    \b
    Example:
      samelog mirror skip eu.flights/0 --to 4711 --config mirror.toml
    """
    destination = load_client(config.destination)
    found = {
        f"{mirror.topic}/{each.partition}": (mirror, each)
        for mirror in all_mirrors(destination)[0].mirrors
        for each in mirror.partitions
    }
    if partition not in found:
        fail(f"no mirror has a partition {partition}; samelog mirror status lists them")
    mirror, part = found[partition]
    end = part.next_offset
    if to <= end:
        fail(f"{partition} ends at {end}, and cannot skip to {to}")
    _check_source_end(config, mirror, part.partition, to)
    gap = LeaveGap(mirror.topic, part.partition, end, to, to, reason="skipped by an operator")
    ask(destination, gap)
    talk(f"{partition}: offsets {end} to {to - 1} are a gap")


def _check_source_end(config: MirrorConfig, mirror: MirrorInfo, partition: int, to: int) -> None:
    """Refuse an offset beyond the end of the source, if the source answers and has the log."""
    source, problem = asyncio.run(_source_state(config))
    if source is None:
        talk(f"the source does not answer, so its end is not known: {problem}")
        return
    rows, _ = _compared([mirror], {each.topic: each for each in source.topics}, {})
    row = next(each for each in rows if each.partition == partition)
    if row.end is None:
        talk(f"the end of {row.source}/{partition} at the source is not known: {row.state}")
    elif to > row.end:
        fail(f"{row.source}/{partition} ends at {row.end} at the source, and cannot skip to {to}")


def _promotable(config: ClientConfig, patterns: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the topics to promote, and those of them that never were mirrors, as far as the
    answering node knows. The cluster refuses the latter.
    """
    from samelog.mirror.choosing import matches

    known = ask(config, ListMirrors()).mirrors
    mirrors = [each for each in known if each.promoted_ms < 0]
    found: dict[str, None] = {}
    for pattern in patterns:
        chosen = [each.topic for each in mirrors if matches(pattern, each.topic)]
        if not chosen and pattern.endswith("*"):
            fail(f"no mirror is called {pattern}")
        found.update(dict.fromkeys(chosen or [pattern]))
    return list(found), sorted(found.keys() - {each.topic for each in known})
