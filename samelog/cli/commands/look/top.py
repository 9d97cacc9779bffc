"""`samelog top`: what a cluster does now, by two looks at it and the time between them.

Everything is asked of the nodes as any administrator may, so that it costs them what lists do.
Invariant: what is made of two looks is a function of them; a node that does not answer is shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from samelog.admin.answers import GroupRow, PartitionInfo, Status, TopicInfo
from samelog.admin.client import AskedNode, all_nodes, all_statuses
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import MirrorInfo
from samelog.admin.requests import ListTopics
from samelog.admin.site_answers import SiteInfo
from samelog.admin.site_requests import ListSites
from samelog.cli.commands.group import group_rows
from samelog.cli.commands.look.kinds import PLAIN, ask_if_may, kinds_of, mirrors_of
from samelog.cli.commands.look.status import combine, partitions_of
from samelog.cli.commands.placing.site import lag_text
from samelog.cli.numbers import COUNT, PERIOD_S
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    part,
    print_json,
    print_table,
    wants_json,
)
from samelog.cli.watching import repeat
from samelog.config.tables.client import ClientConfig
from samelog.wire.plain import to_json

CopyEnds = dict[tuple[str, int], int]
"""(topic, partition) -> the next offset of a copy."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the nodes said at one time (seconds of any clock)."""

    at_s: float
    nodes: tuple[AskedNode, ...]
    """Who was asked, in the order of the answers."""
    answers: tuple[Status | AdminError, ...]
    groups: tuple[GroupRow, ...] = ()
    groups_problem: str = ""
    topics: tuple[TopicInfo, ...] = ()
    mirrors: tuple[MirrorInfo, ...] = ()
    sites: tuple[SiteInfo, ...] = ()

    @property
    def given(self) -> list[Status]:
        """The answers of nodes that gave one."""
        return [answer for answer in self.answers if isinstance(answer, Status)]


@dataclass(frozen=True, slots=True)
class Rates:
    """What grew between two looks, per second; None without an earlier look."""

    seconds: float | None

    def of(self, before: float | None, now: float) -> float | None:
        """Return the rate; a counter that restarted (its topic was recreated) has none."""
        if self.seconds is None or self.seconds <= 0 or before is None or now < before:
            return None
        return round((now - before) / self.seconds, 1)


def take_look(config: ClientConfig, now: Callable[[], float] = time.monotonic) -> Look:
    """Ask every node. Raises OperatorError if none answers."""
    nodes = all_nodes(config)
    answers = all_statuses(config, nodes)
    at_s = now()
    if all(isinstance(answer, AdminError) for answer in answers):
        fail("no node answers: " + "; ".join(map(str, answers)))
    groups, problem = _groups_of(config)
    topics, sites = ask_if_may(config, ListTopics()), ask_if_may(config, ListSites())
    return Look(
        at_s,
        tuple(nodes),
        tuple(answers),
        groups,
        problem,
        () if topics is None else topics.topics,
        mirrors_of(config),
        () if sites is None else sites.sites,
    )


def _groups_of(config: ClientConfig) -> tuple[tuple[GroupRow, ...], str]:
    """The groups, or why they are not known."""
    try:
        return tuple(group_rows(config)), ""
    except AdminError as error:
        return (), str(error)


def compare(config: ClientConfig, before: Look | None, now: Look) -> dict[str, Any]:
    """One JSON object of what the cluster does."""
    found = combine(config.cluster, now.nodes, now.answers)
    rates = Rates(None if before is None else now.at_s - before.at_s)
    earlier = [] if before is None else before.given
    best = max(now.given, key=lambda answer: answer.commit_index)
    rows = partitions_of(now.given)
    return {
        "cluster": found["cluster"],
        "leader": found["leader"],
        "seconds": None if rates.seconds is None else round(rates.seconds, 3),
        "nodes": [_node(row, now.given, earlier, rows, rates) for row in found["nodes"]],
        "topics": _with_kinds(_topics(now.given, earlier, rows, rates), now),
        "groups": _groups(now.groups, () if before is None else before.groups, rates),
        "groups_problem": now.groups_problem,
        "sites": [_site(each) for each in now.sites],
        "sessions": len(best.sessions),
        "open_sessions": sum(session.is_open for session in best.sessions),
        "unmerged_bytes": sum(session.unmerged_bytes for session in best.sessions),
    }


def _ends(answer: Status) -> CopyEnds:
    return {(row.topic, row.partition): row.end_offset for row in answer.partitions}


def _lag(row: PartitionInfo, end: int) -> int:
    """Committed records that a copy lacks, which ends there."""
    return max(0, max(row.committed_offset, row.end_offset) - end)


def _node(
    row: dict[str, Any],
    given: Sequence[Status],
    earlier: Sequence[Status],
    known: Sequence[PartitionInfo],
    rates: Rates,
) -> dict[str, Any]:
    """A node: what it merges per second, and how far it is behind the best informed ones in what it
    has.
    """
    seen = {key: row.get(key) for key in ("name", "address", "state", "role")}
    said = "; ".join(filter(None, (row.get("not_ready"), row.get("detail"))))
    ends, ended = _ends_of(row["name"], given), _ends_of(row["name"], earlier)
    if ends is None:
        return {**seen, "records_per_s": None, "lag_records": None, "detail": said}
    there = None if ended is None else sum(ended.get(place, 0) for place in ends)
    lag = _lag_of(ends, known)
    rate = rates.of(there, sum(ends.values()))
    return {**seen, "records_per_s": rate, "lag_records": lag, "detail": said}


def _ends_of(node: str, answers: Sequence[Status]) -> CopyEnds | None:
    """By its own answer, if it gave one."""
    return next((_ends(answer) for answer in answers if answer.node == node), None)


def _topics(
    given: Sequence[Status],
    earlier: Sequence[Status],
    known: Sequence[PartitionInfo],
    rates: Rates,
) -> list[dict[str, Any]]:
    """Topics by name, and how far a copy is behind."""
    before = partitions_of(earlier)
    copies = [_ends(answer) for answer in given]
    return [
        {
            "topic": topic,
            "partitions": len(rows),
            "records": sum(row.end_offset - row.start_offset for row in rows),
            "bytes": sum(row.size_bytes for row in rows),
            **_growth([row for row in before if row.topic == topic], rows, rates),
            "lag_records": max(_lag_of(ends, rows) for ends in copies),
            "trouble": "; ".join(row.halted for row in rows if row.halted),
        }
        for topic, rows in _by_topic(known).items()
    ]


def _with_kinds(rows: Sequence[dict[str, Any]], look: Look) -> list[dict[str, Any]]:
    """Topics with what they are; and views, which have nothing of their own."""
    kinds = kinds_of(look.topics, look.mirrors)
    views = [_view(each) for each in look.topics if each.base]
    found = [{**row, "kind": kinds.get(row["topic"], PLAIN)} for row in rows]
    return sorted([*found, *views], key=lambda row: str(row["topic"]))


def _view(view: TopicInfo) -> dict[str, Any]:
    nothing = dict.fromkeys(("records", "bytes", "records_per_s", "bytes_per_s"))
    shown: dict[str, Any] = {"topic": view.name, "kind": "view", "partitions": view.partitions}
    return {**shown, **nothing, "lag_records": 0, "trouble": "", "base": view.base}


def _site(site: SiteInfo) -> dict[str, Any]:
    """A site, and how far its best member is behind; -1: nobody there says it."""
    behind = [each.records for each in site.members if each.records >= 0]
    return {
        "site": site.name,
        "votes": site.votes,
        "nodes": [each.node for each in site.members],
        "lag_ms": site.lag_ms,
        "lag_records": min(behind, default=-1),
    }


def _by_topic(known: Sequence[PartitionInfo]) -> dict[str, list[PartitionInfo]]:
    found: dict[str, list[PartitionInfo]] = {}
    for row in known:
        found.setdefault(row.topic, []).append(row)
    return found


def _growth(
    before: Sequence[PartitionInfo], now: Sequence[PartitionInfo], rates: Rates
) -> dict[str, float | None]:
    """Of the partitions that both looks found; another node may not have answered in one."""
    there = {row.partition: row for row in before}
    both = [(there[row.partition], row) for row in now if row.partition in there]
    if not both:
        return {"records_per_s": None, "bytes_per_s": None}
    ended, end = (sum(each.end_offset for each in rows) for rows in zip(*both, strict=True))
    sized, size = (sum(each.size_bytes for each in rows) for rows in zip(*both, strict=True))
    return {"records_per_s": rates.of(ended, end), "bytes_per_s": rates.of(sized, size)}


def _lag_of(ends: CopyEnds, known: Sequence[PartitionInfo]) -> int:
    """Of what a node has: it need not have all partitions."""
    held = [row for row in known if (row.topic, row.partition) in ends]
    return sum(_lag(row, ends[row.topic, row.partition]) for row in held)


def _groups(
    groups: Sequence[GroupRow], earlier: Sequence[GroupRow], rates: Rates
) -> list[dict[str, Any]]:
    """Groups, those that are behind most first; `lag_per_s` below 0: it catches up."""
    before = {each.group: each.lag for each in earlier}
    rows = [
        {
            "group": each.group,
            "state": to_json(each.state),
            "type": each.protocol_type,
            "members": each.members,
            "lag_records": each.lag,
            "partitions_elsewhere": each.elsewhere,
            "lag_per_s": None
            if not rates.seconds or each.group not in before
            else round((each.lag - before[each.group]) / rates.seconds, 1),
        }
        for each in groups
    ]
    return sorted(rows, key=lambda row: (-int(row["lag_records"]), str(row["group"])))


@click.command()
@click.option(
    "--every",
    "every_s",
    default=2.0,
    show_default=True,
    type=PERIOD_S,
    metavar="SECONDS",
    help="Look again after so many seconds.",
)
@click.option("--once", is_flag=True, help="Show the cluster once, after two looks, and end.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=COUNT,
    metavar="N",
    help="Show so many topics and groups, those with the highest rates and lags.",
)
@client_option
@json_option
def command(config: ClientConfig, *, every_s: float, once: bool, limit: int) -> None:
    """Show what a cluster does now: its nodes, topics, groups and sites, with rates and lag.

    It goes on until it is interrupted (Ctrl-C). Rates are those since the look before. Lag is how
    many committed records a node, the slowest copy of a topic, or a group has not got yet. With
    --json every look is one object, on a line of its own unless --once is given; --limit does not
    count there. Views are listed by what they are of: they have no records of their own.

    \b
    Examples:
      samelog top --config client.toml
      samelog top --every 5 --limit 50 --config client.toml
      samelog top --once --json --config client.toml
    """
    before: Look | None = None
    if once or wants_json():
        before = take_look(config)
        time.sleep(every_s)

    def show() -> None:
        nonlocal before
        now = take_look(config)
        found = compare(config, before, now)
        before = now
        if not wants_json():
            show_tables(found, limit)
        elif once:
            print_json(found)
        else:
            click.echo(msgspec.json.encode(found).decode())
        sys.stdout.flush()

    show() if once else repeat(show, every_s)


def show_tables(found: dict[str, Any], limit: int) -> None:
    """Print what was found."""
    sessions = f"{found['open_sessions']} of {found['sessions']} sessions open"
    leader = found["leader"] or "none"
    print_table(
        ("node", "state", "role", "records/s", "lag", "detail"),
        _rows(found["nodes"], ("name", "state", "role", "records_per_s", "lag_records", "detail")),
        title=f"cluster {found['cluster']}, leader {leader}, {sessions}",
    )
    topics = _busiest(found["topics"], limit)
    part()
    print_table(
        ("topic", "parts", "records", "bytes", "records/s", "bytes/s", "lag", "trouble"),
        _rows([{**row, "topic": _named(row)} for row in topics], TOPIC_KEYS),
        title=f"topics ({len(topics)} of {len(found['topics'])})",
    )
    groups = found["groups"][:limit]
    part()
    print_table(
        ("group", "state", "of", "members", "lag", "lag/s"),
        _rows([{**row, **_shown_of_group(row)} for row in groups], GROUP_KEYS),
        title=f"groups ({len(groups)} of {len(found['groups'])}) {found['groups_problem']}".strip(),
    )
    if found["sites"]:
        _show_sites(found["sites"])


def _show_sites(sites: Sequence[dict[str, Any]]) -> None:
    part()
    print_table(
        ("site", "votes", "nodes", "lag", "records behind"),
        [
            (
                row["site"],
                "yes" if row["votes"] else "no",
                ", ".join(row["nodes"]) or "-",
                lag_text(row["lag_ms"]),
                "?" if row["lag_records"] < 0 else row["lag_records"],
            )
            for row in sites
        ],
        title="sites",
    )


def _named(row: dict[str, Any]) -> str:
    """A topic, and what it is, unless it is a plain log."""
    of = f" of {row['base']}" if "base" in row else ""
    return str(row["topic"]) if row["kind"] == PLAIN else f"{row['topic']} ({row['kind']}{of})"


def _shown_of_group(row: dict[str, Any]) -> dict[str, str]:
    """The kind of a group, and its lag: a lower bound if the node lacks some of its partitions."""
    lag = str(row["lag_records"])
    return {
        "type": "subscribers" if row["type"] == "native" else "Kafka",
        "lag_records": f">= {lag}" if row["partitions_elsewhere"] else lag,
    }


GROUP_KEYS = ("group", "state", "type", "members", "lag_records", "lag_per_s")
TOPIC_KEYS = (
    "topic",
    "partitions",
    "records",
    "bytes",
    "records_per_s",
    "bytes_per_s",
    "lag_records",
    "trouble",
)


def _busiest(topics: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Those with trouble first, then by lag and rate."""

    def weight(row: dict[str, Any]) -> tuple[bool, float, float, str]:
        return not row["trouble"], -row["lag_records"], -(row["records_per_s"] or 0), row["topic"]

    return sorted(topics, key=weight)[:limit]


def _rows(found: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[list[object]]:
    return [["-" if row[key] in (None, "") else row[key] for key in keys] for row in found]
