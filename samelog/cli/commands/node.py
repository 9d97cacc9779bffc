"""`samelog node`: one sequencer node, in the foreground; and which nodes a cluster has.

Invariant: the subcommands, which are asked in a hurry when a pod stops, import nothing of a node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import click
from msgspec import UNSET

from samelog.admin.answers import (
    FRESH_S,
    LeadershipMoved,
    NodeAdded,
    NodeInfo,
    NodeState,
    PartitionInfo,
    Status,
)
from samelog.admin.client import all_statuses, ask, ask_node
from samelog.admin.errors import AdminError
from samelog.admin.placement_requests import DrainHost, DrainNode
from samelog.admin.requests import (
    AddNode,
    GetStatus,
    MoveLeadership,
    RemoveNode,
    SetHostMaintenance,
    SetMaintenance,
)
from samelog.admin.site_requests import ListSites
from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.placing.tasks import show, wait_empty
from samelog.cli.confirmation import check_confirmed, confirm_option
from samelog.cli.live_names import complete_hosts, complete_nodes
from samelog.cli.numbers import TIME_S
from samelog.cli.output import (
    client_option,
    fail,
    json_option,
    print_json,
    print_table,
    report,
    talk,
    waiting,
    wants_json,
)
from samelog.cli.watching import watchable
from samelog.config.tables.client import ClientConfig
from samelog.config.values import parse_address
from samelog.format.nouns import counted
from samelog.wire.plain import to_json

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST_MAINTENANCE_S = 30 * 86400
POLL_S = 0.25
OWN_WORD_S = 2.0
REPLACE_HOST_S = 3600.0
"""For each node of a host, unless --wait says otherwise."""

wait_option = click.option(
    "--wait",
    "wait_s",
    default=0.0,
    type=TIME_S,
    help="Wait so many seconds for the node to be a voter, or ready where it is not to vote.",
)
host_option = click.option(
    "--host", shell_complete=complete_hosts, help="All nodes of this host, instead of NAME."
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="node.toml")
@click.option("--bootstrap", is_flag=True, help="Make the data directory of a new cluster's voter.")
@click.option("--check", is_flag=True, help="Check the configuration and exit.")
@json_option
@click.pass_context
def command(
    context: click.Context, config_file: str | None, *, bootstrap: bool, check: bool
) -> None:
    """Run one node of a cluster until SIGTERM or SIGINT; or, with a subcommand, change which nodes
    a cluster has.

    The first start of a new cluster's node needs --bootstrap, once. An empty directory without it
    is a node that joins, or that lost its memory: it asks the peers of its configuration for its
    place, waits until somebody has added it, and does not vote before the cluster lets it.

    A changed configuration file, or SIGHUP, is taken over as far as docs/configuration.md says.

    \b
    Examples:
      samelog node --config /etc/samelog/node.toml --bootstrap
      samelog node --config /etc/samelog/node.toml
      samelog node --config node.toml --check --json
      samelog node add rt-sequencer-3 10.0.0.4:7000 --config client.toml
      samelog node list --config client.toml
      samelog node wait-ready rt-sequencer-3 --config client.toml
    """
    if context.invoked_subcommand is not None:
        return
    if config_file is None:
        raise click.UsageError("a node needs --config node.toml, or name a subcommand")
    if check:
        from samelog.config.load import load_node

        config = load_node(config_file)
        report(
            {"config": config_file, "valid": True, "node": config.name},
            f"{config_file}: valid, node {config.name} of cluster {config.cluster}",
        )
        return
    from samelog.cli.node_process import run_node

    run_node(config_file, bootstrap=bootstrap)


@command.command()
@click.argument("name")
@click.argument("address")
@click.option("--learner", is_flag=True, help="Never make it a voter: it only receives.")
@wait_option
@client_option
@json_option
def add(config: ClientConfig, *, name: str, address: str, learner: bool, wait_s: float) -> None:
    """Add the node NAME, which the others reach at ADDRESS (host:port).

    It begins as a learner and becomes a voter by itself when it has caught up. It stands by instead
    while seven others vote, or while enough others of its host do. The node itself is started
    before or after, with an empty directory, without --bootstrap, and with the cluster's nodes as
    its peers.

    \b
    Examples:
      samelog node add rt-sequencer-3 10.0.0.4:7000 --config client.toml --wait 60
      samelog node add reader-0 10.0.0.9:7000 --learner --config client.toml --json
    """
    _check_address(address)
    if learner and wait_s:
        raise click.UsageError("a --learner never becomes a voter: leave --wait out")
    body = AddNode(name, address, promote=not learner)
    _added(config, body, wait_s)


@command.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="[OLD] NAME ADDRESS [NAME ADDRESS]...",
    shell_complete=complete_nodes,
)
@click.option(
    "--host", shell_complete=complete_hosts, help="Replace all nodes of this host, instead of OLD."
)
@wait_option
@client_option
@json_option
def replace(
    config: ClientConfig, *, words: tuple[str, ...], host: str | None, wait_s: float
) -> None:
    """Put the node NAME at ADDRESS (host:port) in the place of the node OLD.

    NAME begins as a learner; when it has caught up it becomes a voter, and OLD is removed once its
    replicas of data groups are elsewhere. The leader does this; the next one continues it.

    With --host, name a new node for each node of the host. They are replaced one after the other,
    the leader last; --wait bounds each (default 3600 s). If that is interrupted, run it again with
    the same names: it continues.

    \b
    Examples:
      samelog node replace rt-sequencer-1 rt-sequencer-3 10.0.0.4:7000 --config client.toml
      samelog node replace --host h1 n6 10.0.0.4:7000 n7 10.0.0.4:7010 --config client.toml
    """
    if host is not None:
        _replace_host(config, host, _pairs(words), wait_s or REPLACE_HOST_S)
        return
    if len(words) != 3:
        raise click.UsageError(
            "name OLD, NAME and ADDRESS; or --host, and NAME and ADDRESS of each"
        )
    old, name, address = words
    _check_address(address)
    _added(config, AddNode(name, address, replaces=old), wait_s)


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Name -> address. Raises click.UsageError."""
    names, addresses = words[::2], words[1::2]
    if len(names) != len(addresses) or len(set(names)) != len(names):
        raise click.UsageError("name each new node once, with its address: NAME ADDRESS")
    for address in addresses:
        _check_address(address)
    return dict(zip(names, addresses, strict=True))


def _replace_host(config: ClientConfig, host: str, pairs: dict[str, str], wait_s: float) -> None:
    """Replace the nodes of a host one after the other; those that are in place already are not
    touched.
    """
    leaving, coming = _to_replace(config, host, pairs, wait_s)
    done = []
    for old, (name, address) in zip(leaving, coming.items(), strict=True):
        talk(f"{name} at {address} takes the place of {old}")
        done.append(_add(config, AddNode(name, address, replaces=old), wait_s))
    if wants_json():
        print_json([to_json(each) for each in done])
    elif not done:
        talk(f"the nodes of {host} are replaced already")


def _to_replace(
    config: ClientConfig, host: str, pairs: dict[str, str], wait_s: float
) -> tuple[list[str], dict[str, str]]:
    """The nodes of a host that are to go, and those that are to come: as many, once what an earlier
    call began is over. Exits if they do not match.
    """
    deadline = time.monotonic() + wait_s
    while True:
        nodes = members(config)
        begun = [node for node in nodes if node.name in pairs]
        _check_begun(host, begun, pairs)
        leaving = _leaving(host, nodes, is_begun=bool(begun))
        known = {node.name for node in begun}
        coming = {name: address for name, address in pairs.items() if name not in known}
        if len(leaving) == len(coming):
            return leaving, coming
        if not begun or time.monotonic() > deadline:
            there = f"{host} has {counted(len(leaving), 'node')}, {', '.join(leaving)}"
            fail(f"{there}: name as many new ones, not {len(coming)}")
        time.sleep(POLL_S)


def _leaving(host: str, nodes: Sequence[NodeInfo], *, is_begun: bool) -> list[str]:
    """The nodes of a host, the leader last. Exits if there are none, and none were replaced."""
    there = [node for node in nodes if host_of(node) == host]
    if not there and not is_begun:
        hosts = ", ".join(by_host(nodes))
        fail(f"no node is on a host called {host!r}: the hosts are {hosts}")
    order = sorted(there, key=lambda node: (node.role == "leader", node.number))
    return [node.name for node in order]


def _check_begun(host: str, begun: Sequence[NodeInfo], pairs: dict[str, str]) -> None:
    """Those that are members already are to be where they are named, on another host."""
    for node in begun:
        if node.address != pairs[node.name] or host_of(node) == host:
            fail(f"{node.name} at {node.address} is a member already: samelog node list")


@command.command()
@click.argument("name", shell_complete=complete_nodes)
@confirm_option("NAME")
@client_option
@json_option
def remove(config: ClientConfig, *, name: str, confirm: str | None) -> None:
    """Remove the node NAME from the cluster.

    The node logs its removal and stops; its directory stays. If it leads, it transfers leadership
    first. A node that is still being added can be removed too.

    \b
    Example:
      samelog node remove rt-sequencer-2 --confirm rt-sequencer-2 --config client.toml
    """
    loss = f"Node {name} would leave the cluster, and its copies would not count any more"
    check_confirmed(confirm, name, loss)
    removed = ask(config, RemoveNode(name, confirm=name))
    report(removed, f"removed {removed.name} (number {removed.number})")


@command.command()
@click.argument("name", required=False, shell_complete=complete_nodes)
@host_option
@click.option("--for", "duration", help="How long, such as 90s, 30m, 2h or 1d.")
@click.option("--end", is_flag=True, help="It is over.")
@client_option
@json_option
def maintenance(
    config: ClientConfig, *, name: str | None, host: str | None, duration: str | None, end: bool
) -> None:
    """Say that the node NAME is worked on for a while: it is not counted as failed, and does not
    lead if another can. With --host: all nodes of a host.

    \b
    Examples:
      samelog node maintenance rt-sequencer-2 --for 2h --config client.toml
      samelog node maintenance --host h2 --for 2h --config client.toml
      samelog node maintenance rt-sequencer-2 --end --config client.toml
    """
    if end == (duration is not None):
        raise click.UsageError("either --for DURATION or --end")
    seconds = 0 if duration is None else seconds_in(duration)
    one = _node_asked(name, host)
    answer = ask(
        config, SetMaintenance(one, seconds) if one else SetHostMaintenance(str(host), seconds)
    )
    if wants_json():
        print_json(answer)
        return
    state = f"in maintenance until {_when(answer.until_ms)}" if seconds else "not in maintenance"
    for each in answer.nodes:
        talk(f"{each} is {state}")


def _node_asked(name: str | None, host: str | None) -> str:
    """The node that a command is about; empty: all of a host. Raises click.UsageError."""
    if (name is None) == (host is None):
        raise click.UsageError("name a node, or a host: NAME or --host HOST")
    return name or ""


@command.command()
@click.argument("name", required=False, shell_complete=complete_nodes)
@host_option
@click.option("--end", is_flag=True, help="It may have replicas again.")
@click.option(
    "--wait",
    "wait_s",
    default=0.0,
    type=TIME_S,
    help="Wait so many seconds for it to have none.",
)
@client_option
@json_option
def drain(
    config: ClientConfig, *, name: str | None, host: str | None, end: bool, wait_s: float
) -> None:
    """Move all replicas of data groups from the node NAME to others, before it is removed.
    With --host: from all nodes of a host, or from none if other hosts cannot take them.

    A node that cannot be reached any more is given up by this: its copies are remade elsewhere at
    once.

    \b
    Examples:
      samelog node drain rt-sequencer-4 --wait 600 --config client.toml
      samelog node drain --host h4 --wait 600 --config client.toml
      samelog node drain rt-sequencer-4 --end --config client.toml
    """
    if end and wait_s:
        raise click.UsageError("who may have replicas again loses none: leave --wait out")
    one = _node_asked(name, host)
    found = ask(config, DrainNode(one, end) if one else DrainHost(str(host), end))
    for node, effect in found.nodes.items():
        talk(f"{node} {effect}")
    show(wait_empty(config, found.nodes, wait_s) if wait_s else found)


@command.command()
@click.argument("name", required=False, shell_complete=complete_nodes)
@click.option(
    "--from",
    "leader",
    shell_complete=complete_nodes,
    help="Only if this node leads and another can; else nothing is done.",
)
@client_option
@json_option
def transfer(config: ClientConfig, *, name: str | None, leader: str | None) -> None:
    """Let the node NAME lead; without NAME, the one that is best suited besides the leader.

    With --from, a node that is about to stop gives leadership away if it has it.

    \b
    Examples:
      samelog node transfer rt-sequencer-1 --config client.toml
      samelog node transfer --from rt-sequencer-0 --config client.toml
    """
    if leader is not None:
        status = ask(config, GetStatus())
        if status.leader != leader or sum(node.voter for node in status.nodes) == 1:
            _nothing_to_move(status.leader or "")
            return
    answer = ask(config, MoveLeadership(UNSET if name is None else name))
    report(answer, f"{answer.leader} leads")


def _nothing_to_move(leader: str) -> None:
    report(
        LeadershipMoved(leader),
        "another node leads, or there is no other: nothing to do",
    )


@command.command("list")
@client_option
@json_option
@watchable
def list_command(config: ClientConfig) -> None:
    """List the members of the cluster by host, each in its own words.

    A state that its node said more than 5 s ago has a question mark: live?

    \b
    Example:
      samelog node list --config client.toml --json
    """
    nodes = list(chain.from_iterable(by_host(members(config)).values()))
    if wants_json():
        print_json([to_json(node) for node in nodes])
        return
    columns: tuple[str, ...] = ("node", "address", "number", "role", "state")
    rows: list[tuple[object, ...]] = [
        (n.name, n.address, n.number, n.role or "-", state_text(n)) for n in nodes
    ]
    if any(host_of(node) != node.name for node in nodes):
        columns = ("host", *columns)
        rows = [(host_of(node), *row) for node, row in zip(nodes, rows, strict=True)]
    print_table(columns, rows)


def host_of(node: NodeInfo) -> str:
    """The host of a node; one that has not said any is alone on its own."""
    return node.host or node.name


def by_host(nodes: Iterable[NodeInfo]) -> dict[str, list[NodeInfo]]:
    """The members of each host; hosts and members in the order of members' numbers."""
    hosts = dict[str, list[NodeInfo]]()
    for node in sorted(nodes, key=lambda each: each.number):
        hosts.setdefault(host_of(node), []).append(node)
    return hosts


def members(config: ClientConfig) -> list[NodeInfo]:
    """The members that the node with the highest commit index knows, each in its newest own words.
    Raises AdminError.
    """
    answers = all_statuses(config)
    given = [answer for answer in answers if isinstance(answer, Status)]
    if not given:
        raise AdminError("no node answers: " + "; ".join(map(str, answers)))
    best = max(given, key=lambda answer: answer.commit_index)
    found = (_newest(node.number, given) for node in best.nodes)
    return sorted(found, key=lambda node: node.number)


def _newest(number: int, answers: Sequence[Status]) -> NodeInfo:
    """What a member said last, to whomever; its own answer, if it gave one."""
    said = [node for answer in answers for node in answer.nodes if node.number == number]
    return min(said, key=lambda node: (not node.role, node.age_s))


@command.command("wait-ready")
@click.argument("name", shell_complete=complete_nodes)
@click.option(
    "--timeout",
    "timeout_s",
    type=TIME_S,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up, with exit code 1.",
)
@client_option
@json_option
def wait_ready(config: ClientConfig, *, name: str, timeout_s: float) -> None:
    """Wait until the node NAME says that it is ready, as its /readyz does.

    It is Live, knows a leader, and may vote if it is a voter. Between two nodes of a rolling
    restart, this is what to wait for: samelog cluster restart-plan.

    \b
    Example:
      samelog node wait-ready rt-sequencer-1 --timeout 600 --config client.toml
    """
    deadline = time.monotonic() + timeout_s
    with waiting(name) as show:
        while (why := _why_not_ready(config, name)) and time.monotonic() < deadline:
            show(0, None, f"{name}: {why}")
            time.sleep(POLL_S)
    if why:
        fail(f"{name} is not ready after {timeout_s:g} s: {why}")
    report({"node": name, "ready": True}, f"{name} is ready")


def _why_not_ready(config: ClientConfig, name: str) -> str:
    """Empty if the node is ready."""
    try:
        known = {node.name: node for node in members(config)}
    except AdminError as error:
        return str(error)
    if name not in known:
        fail(f"no member is called {name}: samelog node list")
    return why_not_ready(known[name])


def why_not_ready(node: NodeInfo) -> str:
    """Why a member is not ready, or not known to be; empty if it is."""
    if node.age_s > FRESH_S:
        return f"it has said nothing for {node.age_s:.0f} s"
    return node.not_ready


def seconds_in(text: str) -> int:
    """`2h` and the like in seconds. Raises click.BadParameter."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if not 0 < seconds <= LONGEST_MAINTENANCE_S:
        raise click.BadParameter(f"{text!r} is not like 90s, 30m, 2h or 1d (at most 30d)")
    return seconds


def _check_address(address: str) -> None:
    if parse_address(address) is None:
        raise click.BadParameter(f"{address!r} is not host:port")


def _added(config: ClientConfig, body: AddNode, wait_s: float) -> None:
    added = _add(config, body, wait_s)
    if wants_json():
        print_json(added)


def _add(config: ClientConfig, body: AddNode, wait_s: float) -> NodeAdded:
    added, kind = ask(config, body), "a learner"
    if wait_s:
        kind = _kind(wait_voter(config, body, wait_s))
    if not wants_json():
        talk(f"added {added.name} as number {added.number}: {kind}; see samelog node list")
    return added


def _kind(node: NodeInfo) -> str:
    """What a node is that is waited for no longer."""
    if node.voter:
        return "a voter"
    where = "it votes once another node does not" if node.stands_by else "its site only reads"
    return f"ready; {where}"


def wait_voter(config: ClientConfig, body: AddNode, wait_s: float) -> NodeInfo:
    """Wait until the node votes, stands by, or serves in a site that only reads, and the node that
    it replaces is gone; return what is known of it then.
    """
    deadline = time.monotonic() + wait_s
    with waiting(body.node, is_bytes=True) as show:
        while not _is_done(config, body, known := _known(config, body.node, show)):
            if time.monotonic() > deadline:
                fail(f"{body.node} is added, but not a voter after {wait_s:g} s: samelog node list")
            time.sleep(POLL_S)
    return known[body.node]


def _known(
    config: ClientConfig, name: str, show: Callable[[float, float | None, str], None]
) -> dict[str, NodeInfo]:
    """The members by name; shows how much of the merged logs one of them has."""
    try:
        status = ask(config, GetStatus())
    except AdminError:
        return {}
    known = {node.name: node for node in status.nodes}
    if name in known:
        own = _partitions_of(config, known[name])
        show(*copied_bytes(own, status.partitions), f"{name} {state_text(known[name])}")
    return known


def _partitions_of(config: ClientConfig, node: NodeInfo) -> Sequence[PartitionInfo]:
    """What a node has by its own word; nothing, if it says nothing yet."""
    address = parse_address(node.address)
    try:
        if address is None:
            return ()
        return ask_node(
            config, address, GetStatus(), name=node.name, timeout_s=OWN_WORD_S
        ).partitions
    except AdminError:
        return ()


def copied_bytes(
    own: Sequence[PartitionInfo], others: Sequence[PartitionInfo]
) -> tuple[float, float]:
    """How much of another node's merged logs a node has, of how much."""
    sizes = {(each.topic, each.partition): each.size_bytes for each in own}
    done = sum(min(each.size_bytes, sizes.get((each.topic, each.partition), 0)) for each in others)
    return done, sum(each.size_bytes for each in others)


def _is_done(config: ClientConfig, body: AddNode, known: dict[str, NodeInfo]) -> bool:
    node = known.get(body.node)
    if node is None or body.replaces in known:
        return False
    if node.voter or why_not_ready(node):
        return node.voter
    return node.stands_by or only_reads(config, body.node)


def only_reads(config: ClientConfig, name: str) -> bool:
    """Whether a node is in a site whose members never vote."""
    try:
        sites = ask(config, ListSites()).sites
    except AdminError:
        return False
    return any(not each.votes and name in {one.node for one in each.members} for each in sites)


def state_text(node: NodeInfo) -> str:
    """A member's state, as people read it: `live?` was said long ago."""
    text = node.state.value + "?" * (node.age_s > FRESH_S)
    if node.state is NodeState.MAINTENANCE:
        text += f" until {_when(node.maintenance_until_ms)}"
    if node.not_ready and node.state in (NodeState.LIVE, NodeState.MAINTENANCE):
        text += f" (not ready: {node.not_ready})"
    return text


def _when(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
