"""`samelog recover`: the tools for disasters. They are loud, ask to be confirmed, and leave a
record of what may be lost.

Invariant: nothing is deleted; without the confirmation nothing is changed.
"""

from __future__ import annotations

import time
from typing import NoReturn

import click

from samelog.admin.client import ask
from samelog.admin.requests import AddNode, ReadmitNode
from samelog.cli.membership import wait_option, wait_voter
from samelog.cli.output import client_option, fail, json_option, print_json, talk
from samelog.cli.recover_void import command as void
from samelog.config.load import load_node
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.node import NodeConfig
from samelog.sequencer.cluster.node_dir import NodeDirectoryError
from samelog.sequencer.cluster.recovery import Finding, begin_anew, look
from samelog.sequencer.raft.store import RaftStoreError
from samelog.store.disk.files import DiskFault, OsFileSystem

node_option = click.option(
    "--config", "config_file", required=True, type=click.Path(dir_okay=False), help="node.toml"
)
confirm_option = click.option(
    "--confirm", metavar="CLUSTER", help="The cluster's name: yes, I want this."
)


@click.group()
def command() -> None:
    """Recover from disasters: a node that lost its disk, a cluster that lost its majority, records
    that are on no node any more.

    \b
    Examples:
      samelog recover node rt-sequencer-1 --config client.toml
      samelog recover majority-lost --config node.toml
      samelog recover majority-lost --config node.toml --confirm production
      samelog recover void trades 0 --config client.toml
    """


@command.command()
@click.argument("name")
@wait_option
@client_option
@json_option
def node(config: ClientConfig, *, name: str, wait_s: float, as_json: bool) -> None:
    """Take in anew the node NAME, whose data directory was lost.

    Start it with an empty directory first, without --bootstrap: it receives everything, but has no
    vote, because it forgot what it had promised. This gives it a new number, under which it has
    promised nothing; it becomes a voter by itself when it has caught up.

    \b
    Example:
      samelog recover node rt-sequencer-1 --config client.toml --wait 60
    """
    added = ask(config, ReadmitNode(name))
    if wait_s:
        wait_voter(config, AddNode(name, ""), wait_s)
    if as_json:
        print_json(added)
    else:
        talk(f"{added.name} is number {added.number} now; see samelog node list")


@command.command("majority-lost")
@node_option
@confirm_option
@json_option
def majority_lost(config_file: str, *, confirm: str | None, as_json: bool) -> None:
    """Let one surviving node go on alone, when the majority is lost FOR EVER.

    RECORDS THAT WERE ACKNOWLEDGED MAY BE LOST: those that had reached only the lost nodes. Choose
    the survivor with the highest last entry (run this on each without --confirm to see it), and
    never start another node of the old cluster with its old directory again. Stop the node first.
    Afterwards start it, and bring the others back with empty directories: samelog node add.

    \b
    Examples:
      samelog recover majority-lost --config node.toml --json
      samelog recover majority-lost --config node.toml --confirm production
    """
    _begin_anew(config_file, "majority-lost", confirm, as_json=as_json)


@command.command("soft-reset")
@node_option
@confirm_option
@json_option
def soft_reset(config_file: str, *, confirm: str | None, as_json: bool) -> None:
    """Begin Raft anew on this node, and keep all positions.

    Kept are input positions, dedup state, output positions, topics and sessions; Raft's log, term
    and membership begin anew with this node as the only voter. Stop all nodes first, and choose
    the one with the highest last entry. Then start it, and bring the others back with empty
    directories: samelog node add.

    \b
    Example:
      samelog recover soft-reset --config node.toml --confirm production
    """
    _begin_anew(config_file, "soft-reset", confirm, as_json=as_json)


def _begin_anew(config_file: str, kind: str, confirm: str | None, *, as_json: bool) -> None:
    config, fs = load_node(config_file), OsFileSystem()
    try:
        if confirm is None:
            _refuse(config, look(fs, config), as_json=as_json)
        if confirm != config.cluster:
            fail(
                f"--confirm {confirm!r}: the cluster is called {config.cluster!r}; nothing is done"
            )
        wall_ms = time.time_ns() // 1_000_000
        found, aside = begin_anew(fs, config, kind=kind, wall_ms=wall_ms)
    except (NodeDirectoryError, RaftStoreError, DiskFault) as error:
        fail(str(error))
    if as_json:
        print_json({"found": found, "kept": aside, "done": True})
        return
    _describe(found)
    talk(
        f"done: {config.name} is the only voter of {config.cluster}; old Raft files are in {aside}"
    )
    talk("start it, then add the others with EMPTY directories: samelog node add NAME HOST:PORT")


def _refuse(config: NodeConfig, found: Finding, *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"found": found, "kept": None, "done": False})
    else:
        _describe(found)
    fail(
        "WHAT OTHER NODES ACKNOWLEDGED AFTER THIS LAST ENTRY WOULD BE LOST. Nothing is done; "
        f"if this is what you want: --confirm {config.cluster}"
    )


def _describe(found: Finding) -> None:
    talk(f"node {found.node} (number {found.number}) of cluster {found.cluster}:")
    talk(f"  last entry {found.last_index} of term {found.last_term}; committed {found.committed}")
    talk(f"  members: {', '.join(found.members) or 'as configured'}")
    for topic, index, offset in found.partitions:
        talk(f"  {topic}-{index}: next offset {offset}")


command.add_command(void)
