"""`samelog cluster`: what is done to all nodes of a running cluster at once.

Invariant: without --confirm or --finalize nothing is changed; no file is deleted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import click

from samelog.admin.answers import (
    ClusterSettings,
    GroupPlacement,
    NodeInfo,
    Status,
    UpgradeStatus,
)
from samelog.admin.client import all_statuses, ask
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import AlterCluster, BalanceCluster, GetPlacement
from samelog.admin.requests import FinalizeUpgrade, GetUpgrade, ResetCluster
from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.look.status import partitions_of
from samelog.cli.commands.node import by_host, members, why_not_ready
from samelog.cli.commands.placing.tasks import show
from samelog.cli.confirmation import (
    NOTHING_DONE,
    check_confirmed,
    confirm_option,
    replaced_option,
)
from samelog.cli.numbers import TIME_S
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    print_json,
    print_table,
    printable,
    report,
    talk,
    waiting,
    wants_json,
)
from samelog.config.tables.client import ClientConfig
from samelog.format.nouns import counted
from samelog.placement.values import METADATA

LOOK_S = 0.2
MAINTENANCE, WAIT_S = "15m", 600
"""So long may one node take to restart and catch up, before somebody should look at it."""


@click.group(cls=CommandGroup)
def command() -> None:
    """Do something to all nodes of a running cluster.

    \b
    Examples:
      samelog cluster restart-plan --config client.toml
      samelog cluster upgrade --status --config client.toml
      samelog cluster reset --soft --config client.toml
    """


@command.command("restart-plan")
@client_option
@json_option
def restart_plan(config: ClientConfig) -> None:
    """Print how to restart all nodes without a gap: in which order, and what to wait for.

    All nodes of a host restart together, unless a Raft group would lose its majority by that; then
    they restart one after the other, and the plan says which group that is.

    The exit code is 1 if now is no time to begin, because a member is not ready. Nothing is done.

    \b
    Example:
      samelog cluster restart-plan --config client.toml --json
    """
    nodes = members(config)
    waits_for = [f"{node.name}: {why}" for node in nodes if (why := why_not_ready(node))]
    groups = ask(config, GetPlacement()).groups
    steps = [
        _restart(host, together, why)
        for host, found in sorted(by_host(nodes).items(), key=lambda item: max(map(_turn, item[1])))
        for together, why in _together(found, nodes, groups)
    ]
    if wants_json():
        print_json({"may_begin": not waits_for, "waits_for": waits_for, "steps": steps})
    else:
        click.echo("\n".join(_shown(number, step) for number, step in enumerate(steps, 1)))
    if waits_for:
        fail(f"do not begin yet, {'; '.join(waits_for)}")


@command.command()
@client_option
@json_option
def balance(config: ClientConfig) -> None:
    """Even out replicas and leaders of data groups over the nodes.

    That also happens by itself; this begins again what was cancelled. Nothing moves if no node has
    two replicas more than another.

    \b
    Example:
      samelog cluster balance --config client.toml
    """
    show(ask(config, BalanceCluster()))


@command.command()
@click.option(
    "--default-replication-factor",
    "copies",
    type=click.IntRange(min=0, max=7),
    required=True,
    help="Copies of topics created without a number; 0: as shipped.",
)
@client_option
@json_option
def alter(config: ClientConfig, *, copies: int) -> None:
    """Change how many copies a topic gets that is created without a number.

    The number is stored with each topic when it is created: topics that exist keep theirs. As
    shipped, such a topic has a copy on every node. `samelog placement` shows the setting.

    \b
    Example:
      samelog cluster alter --default-replication-factor 3 --config client.toml
    """
    found = ask(config, AlterCluster(copies))
    report(found, f"topics created without a number get {copies_of(found)}")


def copies_of(settings: ClusterSettings) -> str:
    """How many copies topics get that are created without a number."""
    copies = settings.default_replication_factor
    return counted(copies, "copy", "copies") if copies else "a copy on every node"


@command.command()
@click.option("--status/--finalize", "only_look", default=None, help="Look, or raise the level.")
@client_option
@json_option
def upgrade(config: ClientConfig, *, only_look: bool | None) -> None:
    """Look at the cluster's feature level (--status), or raise it (--finalize).

    Nodes of two versions may run side by side. What a newer version brings is used only once the
    feature level is raised, to the newest that all members support. THAT CANNOT BE UNDONE: from
    then on an older version cannot run any of these nodes. See docs/upgrades.md.

    Both exit with 1 while a member keeps the cluster from the newest level; then nothing is done.

    \b
    Examples:
      samelog cluster upgrade --status --config client.toml
      samelog cluster upgrade --finalize --config client.toml --json
    """
    if only_look is None:
        raise click.UsageError("--status or --finalize?")
    if only_look:
        _show_upgrade(ask(config, GetUpgrade()))
        return
    raised = ask(config, FinalizeUpgrade())
    was = f"it was {raised.since}" if raised.since < raised.level else "there was nothing to raise"
    report(raised, f"the feature level is {raised.level}; {was}")


def _show_upgrade(found: UpgradeStatus) -> None:
    if wants_json():
        print_json(found)
    else:
        rows = [(member.name, member.level or "-") for member in found.members]
        print_table(("node", "supports"), rows)
        click.echo(
            f"feature level {found.level}, the newest that a node supports is {found.newest}"
        )
        for level, brings in found.brings.items():
            click.echo(printable(f"level {level}: {brings}"))
    if found.waits_for:
        fail(f"the level cannot be {found.newest} yet: {'; '.join(found.waits_for)}")


def _turn(node: NodeInfo) -> tuple[bool, bool, int]:
    """Learners first, since nothing depends on them; the leader last, so that it moves once."""
    return node.voter, node.role == "leader", node.number


def _together(
    on_host: Sequence[NodeInfo], nodes: Sequence[NodeInfo], groups: Sequence[GroupPlacement]
) -> list[tuple[list[NodeInfo], str]]:
    """Which nodes of a host restart together, and why not all of them."""
    names = {node.name for node in on_host}
    voters = {METADATA: [node.name for node in nodes if node.voter]} | {
        each.group: list(each.members) for each in groups if each.group != METADATA
    }
    stopped = [group for group, members in voters.items() if _lose_majority(names, members)]
    if not stopped:
        return [(sorted(on_host, key=_turn), "")]
    why = f"group {min(stopped)} would have no majority without all nodes of the host"
    return [([node], why) for node in sorted(on_host, key=_turn)]


def _lose_majority(leaving: set[str], members: Sequence[str]) -> bool:
    """Whether it takes several of these nodes to leave the others without a majority."""
    gone = len(leaving.intersection(members))
    return gone > 1 and 2 * gone >= len(members)


def _restart(host: str, together: Sequence[NodeInfo], why: str) -> dict[str, Any]:
    names = [node.name for node in together]
    leaders = [node.name for node in together if node.role == "leader"]
    which = names[0] if len(names) == 1 else f"--host {host}"
    units = [f"samelog-node@{name}" for name in names]
    restart = "systemctl restart " + ("samelog-node" if names == [host] else " ".join(units))
    commands = [
        f"samelog node maintenance {which} --for {MAINTENANCE}",
        *(f"samelog node transfer --from {name}" for name in leaders),
        f"{restart}    # on {host}; or kubectl delete pod {' '.join(names)}",
        *(f"samelog node wait-ready {name} --timeout {WAIT_S}" for name in names),
        f"samelog node maintenance {which} --end",
    ]
    found = [{"node": n.name, "address": n.address, "role": n.role} for n in together]
    return {"host": host, "nodes": found, "alone_because": why, "commands": commands}


def _shown(number: int, step: dict[str, Any]) -> str:
    nodes = [f"{n['node']} at {n['address']} ({n['role'] or 'away'})" for n in step["nodes"]]
    because = f"; alone, as {step['alone_because']}" if step["alone_because"] else ""
    head = f"{number}. {', '.join(nodes)}{because}"
    return "\n".join([printable(head), *(f"   {printable(text)}" for text in step["commands"])])


@command.command()
@click.option("--soft/--hard", "soft", default=None, help="Raft's log only, or all topics' logs.")
@confirm_option("CLUSTER")
@replaced_option("--yes", "--confirm CLUSTER")
@click.option(
    "--wait",
    "wait_s",
    type=TIME_S,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="For all nodes that answer to have done it.",
)
@client_option
@json_option
def reset(config: ClientConfig, *, soft: bool | None, confirm: str | None, wait_s: float) -> None:
    """Restart Raft's log (--soft) or the logs of all topics (--hard), on all nodes.

    --soft: every node takes a snapshot and lets go of Raft's log before it. Positions, dedup state,
    topics, sessions, groups and all records stay; clients notice nothing.

    --hard: EVERY TOPIC RESTARTS AT OFFSET 0. WHAT IT HELD CAN NO LONGER BE READ; the old files
    stay on each node, in merged/replaced, until somebody removes them. Topics, settings, sessions
    and dedup state stay; committed offsets of consumer groups go. What publishers had not got
    merged before is merged into the new logs, exactly once. Old positions are refused: subscribers
    get LogReset, or start over as their auto_offset_reset says; Kafka consumers are fenced by a new
    leader epoch and new topic ids.

    A node that is away does the same when it comes back. If no leader can be elected any more, see
    samelog recover.

    \b
    Examples:
      samelog cluster reset --hard --config client.toml          prints what would be lost
      samelog cluster reset --soft --config client.toml --confirm production
      samelog cluster reset --hard --config client.toml --confirm production --json
    """
    if soft is None:
        raise click.UsageError("--soft or --hard?")
    if confirm != config.cluster:
        check_confirmed(confirm, config.cluster, _warning(config, hard=not soft))
    request = ResetCluster(not soft, uuid.uuid4().hex, confirm=config.cluster)
    done = ask(config, request)
    away = _wait(config, done.index, wait_s, hard=not soft)
    if wants_json():
        logs = {each.topic: each.log_id for each in done.topics}
        print_json({"hard": not soft, "index": done.index, "logs": logs, "not_yet": away})
    else:
        what = "Raft's log restarts" if soft else f"the logs of {len(done.topics)} topics restart"
        talk(f"done: {what} behind entry {done.index}; samelog status keeps the event")
        for trouble in away:
            talk(f"{trouble}; it does the same when it is back")


def _warning(config: ClientConfig, *, hard: bool) -> str:
    if not hard:
        return "Every node would take a snapshot and start a new Raft log"
    known = [answer for answer in all_statuses(config) if isinstance(answer, Status)]
    if not known:
        fail(f"no node answers. {NOTHING_DONE}")
    partitions = partitions_of(known)
    records = sum(each.end_offset - each.start_offset for each in partitions)
    topics = len({each.topic for each in partitions})
    return (
        f"ALL {topics} TOPICS OF CLUSTER {known[0].cluster} WOULD BECOME EMPTY. THEIR {records} "
        "RECORDS COULD NO LONGER BE READ"
    )


def _wait(config: ClientConfig, index: int, wait_s: float, *, hard: bool) -> list[str]:
    """Wait until every node that answers, and every data group, has done it: those that do not
    answer, or have not yet.
    """
    deadline = time.monotonic() + wait_s
    with waiting("reset") as tell:
        while True:
            answers = all_statuses(config)
            behind, away = _sort(answers, index)
            done = len(answers) - len(behind) - len(away)
            if hard and not behind:
                behind = _groups_behind(config)
            if not behind or time.monotonic() >= deadline:
                return behind + away
            tell(done, len(answers), behind[0])
            time.sleep(LOOK_S)


def _sort(answers: Sequence[Status | AdminError], index: int) -> tuple[list[str], list[str]]:
    """(nodes that have not done it yet, what is known of those that do not answer)."""
    behind = [
        f"{answer.node} has not come so far yet"
        for answer in answers
        if isinstance(answer, Status) and _applied(answer) < index
    ]
    return behind, [str(answer) for answer in answers if isinstance(answer, AdminError)]


def _groups_behind(config: ClientConfig) -> list[str]:
    """Data groups that have yet to restart their logs."""
    try:
        known = ask(config, GetPlacement()).groups
    except AdminError as error:
        return [str(error)]
    behind = [each.group for each in known if each.is_resetting]
    return [f"group {number} has not restarted its logs yet" for number in behind]


def _applied(status: Status) -> int:
    return next((node.applied_index for node in status.nodes if node.name == status.node), 0)
