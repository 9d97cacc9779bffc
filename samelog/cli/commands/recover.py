"""`samelog recover`: the tools for disasters. They are loud, ask to be confirmed, and leave a
record of what may be lost.

Invariant: nothing is deleted; without the confirmation nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from samelog.admin.answers import PlacementStatus, Status
from samelog.admin.client import all_statuses, ask, ask_each
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import GetPlacement, RecoverDataGroup
from samelog.admin.requests import AddNode, ReadmitNode, VoidRecords
from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.node import wait_option, wait_voter
from samelog.cli.confirmation import NOTHING_DONE, check_confirmed, confirm_option
from samelog.cli.live_names import complete_data_groups, complete_nodes, complete_topics
from samelog.cli.numbers import NUMBER, PARTITION
from samelog.cli.output import (
    ConfigPlace,
    client_option,
    fail,
    json_option,
    print_json,
    report,
    talk,
    wants_json,
)
from samelog.config.load import load_node
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.node import NodeConfig
from samelog.format.errors import LogFormatError
from samelog.sequencer.cluster.node_dir import NodeDirectoryError
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.raft_home import raft_path
from samelog.sequencer.recovery import Finding, begin_anew, look, move_raft
from samelog.store.disk.files import DiskFault, OsFileSystem

node_option = click.option(
    "--config",
    "config_file",
    required=True,
    type=ConfigPlace("FILE", "Name the node.toml of the stopped node by --config FILE."),
    help="The node.toml of the stopped node.",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Recover from disasters: a node that lost its disk, a cluster that lost its majority, records
    that are on no node any more.

    \b
    Examples:
      samelog recover node rt-sequencer-1 --confirm rt-sequencer-1 --config client.toml
      samelog recover majority-lost --config node.toml
      samelog recover majority-lost --config node.toml --confirm production
      samelog recover group 3 --config client.toml
      samelog recover void trades 0 --config client.toml
      samelog recover move-raft --config node.toml --confirm production
    """


@command.command()
@click.argument("name", shell_complete=complete_nodes)
@confirm_option("NAME")
@wait_option
@client_option
@json_option
def node(config: ClientConfig, *, name: str, confirm: str | None, wait_s: float) -> None:
    """Readmit the node NAME, whose data directory was lost, under another number.

    Start it with an empty directory first, without --bootstrap: it receives everything, but has no
    vote, because it forgot what it had promised. The others let it in by themselves when it has
    caught up. Instead, this gives it a new number, under which it has promised nothing; it becomes
    a voter by itself when it has caught up.

    \b
    Example:
      samelog recover node rt-sequencer-1 --confirm rt-sequencer-1 --config client.toml --wait 60
    """
    loss = f"Node {name} would get a new number; promises that it made under its old one are lost"
    check_confirmed(confirm, name, loss)
    added = ask(config, ReadmitNode(name, confirm=name))
    if wait_s:
        wait_voter(config, AddNode(name, ""), wait_s)
    report(added, f"{added.name} is number {added.number} now; see samelog node list")


@command.command("majority-lost")
@node_option
@confirm_option("CLUSTER")
@click.option("--with", "others", multiple=True, metavar="NODE", help="Another survivor.")
@json_option
def majority_lost(config_file: str, *, confirm: str | None, others: Sequence[str]) -> None:
    """Let one surviving node go on alone, when the majority is lost FOR EVER.

    RECORDS THAT WERE ACKNOWLEDGED MAY BE LOST: those that had reached only the lost nodes. Choose
    the survivor with the highest last entry (run this on each without --confirm to see it), and
    never start another node of the old cluster with its old directory again. Stop the node first.
    Afterwards start it, and bring the others back with empty directories: samelog node add.

    Data groups are kept. Those that have lost their majority, and of which only this node has a
    replica, go on with that. Name other survivors by --with: they stay members, with all that they
    have; leave them running, or start them afterwards. A group that is left to several of them
    goes on with the replica that you choose: samelog recover group.

    \b
    Examples:
      samelog recover majority-lost --config node.toml --json
      samelog recover majority-lost --config node.toml --confirm production
      samelog recover majority-lost --config node.toml --with node-4 --confirm production
    """
    _begin_anew(config_file, "majority-lost", confirm, others)


@command.command("soft-reset")
@node_option
@confirm_option("CLUSTER")
@json_option
def soft_reset(config_file: str, *, confirm: str | None) -> None:
    """Restart Raft on this node, and keep all positions.

    Kept are input positions, dedup state, output positions, topics and sessions; Raft's log, term
    and membership restart with this node as the only voter. Stop all nodes first, and choose
    the one with the highest last entry. Then start it, and bring the others back with empty
    directories: samelog node add.

    \b
    Example:
      samelog recover soft-reset --config node.toml --confirm production
    """
    _begin_anew(config_file, "soft-reset", confirm)


@command.command("move-raft")
@node_option
@confirm_option("CLUSTER")
@json_option
def move(config_file: str, *, confirm: str | None) -> None:
    """Move a stopped node's Raft files to where node.raft_dir says, or back where it is not set.

    They are copied, and count from then on; the old ones are set aside, for you to remove. It may
    be interrupted, and begun again. A node whose files are not where it looks for them does not
    start.

    \b
    Example:
      samelog recover move-raft --config node.toml --confirm production
    """
    config, fs = load_node(config_file), OsFileSystem()
    where = raft_path(config)
    check_confirmed(confirm, config.cluster, f"Raft's files of {config.name} would move to {where}")
    try:
        where, aside = move_raft(fs, config, wall_ms=time.time_ns() // 1_000_000)
    except (NodeDirectoryError, RaftStoreError, LogFormatError) as error:
        fail(str(error))
    report({"directory": where, "kept": aside}, f"Raft's files are in {where}; old ones: {aside}")


def _begin_anew(
    config_file: str, kind: str, confirm: str | None, others: Sequence[str] = ()
) -> None:
    config, fs = load_node(config_file), OsFileSystem()
    try:
        if confirm != config.cluster:
            _refuse(config, look(fs, config), confirm)
        wall_ms = time.time_ns() // 1_000_000
        found, aside = begin_anew(fs, config, kind=kind, wall_ms=wall_ms, others=others)
    except OtherVersion as error:
        fail(f"{error}: {error.remedy}")
    except (NodeDirectoryError, RaftStoreError, DiskFault) as error:
        fail(str(error))
    if wants_json():
        print_json({"found": found, "kept": aside, "done": True})
        return
    _describe(found)
    talk(
        f"done: {config.name} is the only voter of {config.cluster}; old Raft files are in {aside}"
    )
    talk("start it, then add the others with EMPTY directories: samelog node add NAME HOST:PORT")


def _refuse(config: NodeConfig, found: Finding, confirm: str | None) -> None:
    if wants_json():
        print_json({"found": found, "kept": None, "done": False})
    else:
        _describe(found)
    loss = "RECORDS THAT OTHER NODES ACKNOWLEDGED AFTER THIS LAST ENTRY WOULD BE LOST"
    check_confirmed(confirm, config.cluster, loss)


def _describe(found: Finding) -> None:
    talk(f"node {found.node} (number {found.number}) of cluster {found.cluster}:")
    talk(f"  last entry {found.last_index} of term {found.last_term}; committed {found.committed}")
    talk(f"  members: {', '.join(found.members) or 'as configured'}")
    for topic, index, offset in found.partitions:
        talk(f"  {topic}-{index}: next offset {offset}")
    for each in found.replicas:
        where = f"replicas on {', '.join(each.members) or 'unknown nodes'}"
        talk(f"  group {each.group}: entry {each.entry} of term {each.term}; {where}")
    if found.others:
        talk(f"  nothing of groups {', '.join(map(str, found.others))}")


# --- one data group -------------------------------------------------------------------------------


@command.command("group")
@click.argument("group", type=NUMBER, shell_complete=complete_data_groups)
@click.option(
    "--from",
    "name",
    metavar="NODE",
    shell_complete=complete_nodes,
    help="The node whose replica goes on.",
)
@confirm_option("GROUP")
@client_option
@json_option
def data_group(config: ClientConfig, *, group: int, name: str | None, confirm: str | None) -> None:
    """Let the data group GROUP go on with one replica, when its majority is lost FOR EVER.

    RECORDS THAT WERE ACKNOWLEDGED MAY BE LOST: those that had reached only the lost nodes. Choose
    the node with the highest newest entry (run this without --from to see it), and never start a
    lost node with its old directory again: what it has of the group is set aside then. The group's
    other copies are rebuilt automatically.

    \b
    Examples:
      samelog recover group 3 --config client.toml
      samelog recover group 3 --from rt-sequencer-1 --confirm 3 --config client.toml
    """
    newest, suspect = _replicas(config, group)
    if name is None or confirm != str(group):
        if wants_json():
            print_json({"group": group, "newest": newest, "suspect": suspect, "done": False})
        for node_name, (term, index) in newest.items():
            counts = ", and counts for nothing: it may have forgotten more" * (node_name in suspect)
            talk(f"{node_name}: entry {index} of term {term}{counts}")
        loss = "RECORDS THAT OTHER NODES ACKNOWLEDGED AFTER THIS WOULD BE LOST"
        check_confirmed(confirm, str(group), loss)
        fail(f"{loss}. {NOTHING_DONE}. To proceed, add: --from NODE")
    ask(config, RecoverDataGroup(group, name, tuple(suspect), confirm=confirm))
    done = {"group": group, "newest": newest, "suspect": suspect, "done": True}
    report(done, f"group {group} goes on with {name}; samelog status keeps the event")


def _replicas(config: ClientConfig, group: int) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Node that answers and has a replica -> (term, index) of its newest entry; and which of them
    say that theirs counts for nothing.
    """
    found = [
        each
        for answer in ask_each(config, GetPlacement())
        if isinstance(answer, PlacementStatus)
        for each in answer.groups
        if each.group == group
    ]
    known = {name: newest for each in found for name, newest in each.newest.items()}
    if not known:
        fail(f"no node that answers has a replica of group {group}: samelog placement")
    return known, sorted(name for each in found for name in each.suspect)


# --- records that no node has any more ------------------------------------------------------------


class NodeCopy(NamedTuple):
    """One node's copy of the partition: where it ends, and up to where it misses records for good
    (0: it misses none).
    """

    node: str
    end_offset: int
    wanted_offset: int


@command.command("void")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=PARTITION)
@click.option(
    "--lost",
    "without",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help="A node that is gone.",
)
@confirm_option("TOPIC")
@client_option
@json_option
def void(config: ClientConfig, **options: Any) -> None:
    """Give up the records that PARTITION of TOPIC waits for and no node has any more.

    A batch that is damaged on every node holds up its partition. RESTORE IT IF YOU CAN: start the
    nodes that are away, start the publisher, bring the files back from a backup. This fills the
    offsets with void batches, which all readers pass over, and leaves an event in the status. A
    node that turns out to have the records sets them aside. Name nodes that are gone for ever with
    --lost.

    \b
    Examples:
      samelog recover void trades 0 --config client.toml
      samelog recover void trades 0 --config client.toml --confirm trades
    """
    topic, partition = options["topic"], options["partition"]
    copies = _copies(all_statuses(config), topic, partition)
    first, behind = _gap(copies, f"{topic}-{partition}")
    lost = f"records {first} to {behind - 1} of {topic}-{partition}"
    if options["confirm"] != topic:
        if wants_json():
            print_json(_void_answer(copies, first, behind, done=False))
        check_confirmed(options["confirm"], topic, f"{lost} are on no node and would be given up")
    asked = VoidRecords(topic, partition, first, behind, options["without"], confirm=topic)
    ask(config, asked)
    report(
        _void_answer(copies, first, behind, done=True),
        f"{lost} are given up; samelog status keeps the event",
    )


def _copies(answers: Sequence[Status | AdminError], topic: str, partition: int) -> list[NodeCopy]:
    copies = [
        NodeCopy(answer.node, info.end_offset, info.wanted_offset)
        for answer in answers
        if isinstance(answer, Status)
        for info in answer.partitions
        if (info.topic, info.partition) == (topic, partition)
    ]
    if not copies:
        troubles = "; ".join(str(answer) for answer in answers if isinstance(answer, AdminError))
        fail(f"no node knows {topic}-{partition} {troubles}".rstrip())
    return copies


def _gap(copies: Sequence[NodeCopy], name: str) -> tuple[int, int]:
    """The offsets that all copies miss: some may hold records behind a damaged batch."""
    ends = {copy.end_offset for copy in copies}
    behind = min(copy.wanted_offset for copy in copies)
    if len(ends) > 1 or behind <= copies[0].end_offset:
        seen = ", ".join(_describe_copy(copy) for copy in copies)
        fail(f"{name} does not miss the same records everywhere, for good: {seen}")
    return copies[0].end_offset, behind


def _describe_copy(copy: NodeCopy) -> str:
    misses = f"misses those up to {copy.wanted_offset}" if copy.wanted_offset else "misses none"
    return f"{copy.node} has offsets up to {copy.end_offset} and {misses}"


def _void_answer(
    copies: Sequence[NodeCopy], first: int, behind: int, *, done: bool
) -> dict[str, Any]:
    rows = [copy._asdict() for copy in copies]
    return {"first_offset": first, "next_offset": behind, "copies": rows, "done": done}
