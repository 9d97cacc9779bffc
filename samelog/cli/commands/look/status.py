"""`samelog status`: the cluster as its nodes see it.

Every member is asked, and speaks for itself; what belongs to the cluster as a whole is taken from
the answer with the highest commit index. Invariant: a node that does not answer is shown, with why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from samelog.admin.answers import FRESH_S, NodeState, PartitionInfo, Status
from samelog.admin.client import AskedNode, all_nodes, all_statuses
from samelog.admin.errors import AdminError
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    part,
    print_json,
    print_table,
    utc,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.wire.plain import to_json

Answer = Status | AdminError


@click.command()
@client_option
@json_option
@watchable
def command(config: ClientConfig) -> None:
    """Show the nodes, partitions and sessions of a cluster.

    The exit code is 1 if no node answers.

    \b
    Examples:
      samelog status --config client.toml
      samelog status --config client.toml --json
    """
    nodes = all_nodes(config)
    answers = all_statuses(config, nodes)
    found = combine(config.cluster, nodes, answers)
    if found["answers"] == 0:
        fail("no node answers: " + "; ".join(str(answer) for answer in answers))
    if wants_json():
        print_json(found)
    else:
        _print(found)


def combine(cluster: str, nodes: Sequence[AskedNode], answers: Sequence[Answer]) -> dict[str, Any]:
    """One JSON object of all answers, given in the order of the nodes that were asked."""
    given = [answer for answer in answers if isinstance(answer, Status)]
    best = max(given, key=lambda answer: answer.commit_index, default=None)
    return {
        "cluster": cluster,
        "answers": len(given),
        "leader": best and best.leader,
        "nodes": _nodes(nodes, answers, best),
        "partitions": [_partition(row, given) for row in partitions_of(given)],
        "sessions": [to_json(session) for session in (best.sessions if best else ())],
        "events": [to_json(event) for event in (best.events if best else ())],
        "warnings": list(best.warnings if best else ()),
    }


def partitions_of(answers: Sequence[Status]) -> list[PartitionInfo]:
    """All partitions by name, each as the best informed node has it that has it: data groups are on
    some of the nodes only.
    """
    found: dict[tuple[str, int], PartitionInfo] = {}
    for answer in sorted(answers, key=lambda each: each.commit_index, reverse=True):
        for row in answer.partitions:
            found.setdefault((row.topic, row.partition), row)
    return [row for _, row in sorted(found.items())]


def _nodes(
    nodes: Sequence[AskedNode], answers: Sequence[Answer], best: Status | None
) -> list[dict[str, Any]]:
    """A row for each node that was asked, and for each member that was not."""
    rows = [_node(node, answer) for node, answer in zip(nodes, answers, strict=True)]
    members = {} if best is None else {node.name: node for node in best.nodes}
    for row in rows:
        known = members.pop(row["name"], None)
        if known is not None and known.state is NodeState.MAINTENANCE:
            row["state"] = to_json(known.state)
    return rows + [to_json(node) for node in members.values()]


def _node(node: AskedNode, answer: Answer) -> dict[str, Any]:
    address, name = str(node[0]), node[1]
    if isinstance(answer, AdminError):
        state = to_json(NodeState.OFFLINE)
        return {"name": name, "address": address, "state": state, "detail": str(answer)}
    own = next((node for node in answer.nodes if node.name == answer.node), None)
    seen = {
        "leader": answer.leader,
        "term": answer.term,
        "commit_index": answer.commit_index,
        "resources": to_json(answer.resources),
    }
    gone = {"name": answer.node, "address": address, "state": "offline"}
    return {**(gone if own is None else to_json(own)), **seen}


def _partition(row: PartitionInfo, answers: Sequence[Status]) -> dict[str, Any]:
    """The best informed node's row, and under `copies` where each node's copy ends."""
    copies = {
        answer.node: {"end_offset": copy.end_offset, "checksum": copy.checksum}
        for answer in answers
        for copy in answer.partitions
        if (copy.topic, copy.partition) == (row.topic, row.partition)
    }
    return {**to_json(row), "copies": copies}


def _print(found: dict[str, Any]) -> None:
    print_table(
        ("node", "state", "role", "term", "commit", "applied", "detail"),
        [_node_row(node) for node in found["nodes"]],
        title=f"cluster {found['cluster']}, leader {found['leader'] or 'none'}",
    )
    for warning in found["warnings"]:
        click.echo(f"warning: {warning}")
    part()
    print_table(
        ("topic", "partition", "end", "merged", "checksum", "copies", "trouble"),
        [_partition_row(partition) for partition in found["partitions"]],
        title="partitions: the next offset, and up to where it is merged durably",
    )
    part()
    print_table(
        ("session", "identity", "run", "open", "unmerged bytes", "held bytes"),
        [_session_row(session) for session in found["sessions"]],
        title="sessions",
    )
    if found["events"]:
        part()
        print_table(
            ("at", "event", "what"),
            [(utc(event["at_ms"]), event["kind"], event["text"]) for event in found["events"]],
            title="events",
        )


def _node_row(node: dict[str, Any]) -> list[object]:
    name = node["name"] or node["address"]
    state = node["state"] + "?" * (node.get("age_s", 0) > FRESH_S)
    keys = ("role", "term", "commit_index", "applied_index")
    said = "; ".join(filter(None, (node.get("not_ready"), node.get("detail"))))
    return [name, state, *(_shown(node.get(key)) for key in keys), said]


def _partition_row(partition: dict[str, Any]) -> list[object]:
    """Of the copies it shows how many have all that the best informed node has."""
    ends = [copy["end_offset"] for copy in partition["copies"].values()]
    whole = sum(end >= partition["end_offset"] for end in ends)
    return [
        partition["topic"],
        partition["partition"],
        partition["end_offset"],
        partition["merged_offset"],
        f"{partition['checksum']:08x}",
        f"{whole}/{len(ends)}",
        _trouble(partition),
    ]


def _trouble(partition: dict[str, Any]) -> str:
    """Halted, records that are nowhere, or two copies of one length with different bytes."""
    if partition["wanted_offset"]:
        first, behind = partition["end_offset"], partition["wanted_offset"]
        return f"records {first} to {behind - 1} are on no node: samelog recover void --help"
    copies = partition["copies"].values()
    differ = len({(copy["end_offset"], copy["checksum"]) for copy in copies}) > len(
        {copy["end_offset"] for copy in copies}
    )
    return str(partition["halted"] or ("copies differ" if differ else ""))


def _session_row(session: dict[str, Any]) -> list[object]:
    keys = ("session", "identity", "run", "is_open", "unmerged_bytes")
    held = sum(each["size_bytes"] for each in session.get("held", ()))
    return [*(_shown(session[key]) for key in keys), held]


def _shown(value: object) -> object:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value
