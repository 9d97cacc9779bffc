"""A site is promoted: what the state says then, and what becomes of those who are of before."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from samelog.admin.site_answers import Standing
from samelog.admin.site_requests import PromoteSite
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.config.load import load_node
from samelog.config.tables.node import NodeConfig
from samelog.placement.cluster_ids import ends, promoted_id
from samelog.placement.sites import Sites
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.admin.siting.promoting import check_promotion
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.cluster.lives import NEVER_SEEN, contradiction
from samelog.sequencer.cluster.node_dir import NodeDirectory, NodeDirectoryError, read_record
from samelog.sequencer.cluster.promotion import SiteWasPromoted
from samelog.sequencer.host import NodeResources
from samelog.sequencer.merge.dedup import BatchFacts, DedupView
from samelog.sequencer.node import Node
from samelog.sequencer.recovery import SitePromotion, begin_anew, look
from samelog.sequencer.serving import serve_node
from samelog.sequencer.sites import staying
from samelog.sequencer.sites.sources import far_members
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range, Sequence5, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.members import Member, SetMembers
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.sites import (
    AddSite,
    PromoteSiteCommand,
    SetSiteCommand,
    SetSiteVotes,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import OsFileSystem
from samelog.wire.bounds import Life
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.peer_messages import Superseded
from tests.patience import PATIENCE_S
from tests.sequencer.cluster import InLoop, RunWith, Session, batch, leader_of, offset, until

FS = OsFileSystem()
SITE_OF = "nyc", "lon", "nyc"
FIRST, ONE = "0123456789abcdef", "a" * 16
PROMOTE = PromoteSiteCommand("nyc", ONE, 1, 40, 3, 1_000, "what may be lost")


@pytest.fixture
def machine() -> StateMachine:
    """A voter in lon, a learner in nyc, one partition."""
    machine = StateMachine()
    members = [Member(n, f"n{n}", f"h{n}:1", f"samelog://node/n{n}", voter=n == 0) for n in (0, 1)]
    commands: list[AnyCommand] = [
        SetMembers(members, FIRST),
        AddSite("lon", True, 1),
        AddSite("nyc", False, 2),
        SetSiteCommand(0, "lon"),
        SetSiteCommand(1, "nyc"),
        CreateTopicCommand("t" * 32, "t", 1, {}, 3),
    ]
    for command in commands:
        assert not isinstance(machine.apply(command), Rejection)
    return machine


def code(machine: StateMachine, command: AnyCommand) -> str:
    outcome = machine.apply(command)
    return outcome.code if isinstance(outcome, Rejection) else ""


def test_commands_are_the_same_after_a_way_through_the_log() -> None:
    commands: list[AnyCommand] = [PROMOTE, SetSiteVotes("lon", True, 5)]
    assert decode_commands(encode_commands(commands)) == commands


def test_a_promoted_site_votes_and_the_cluster_has_another_id(machine: StateMachine) -> None:
    before = machine.state.members.cluster_id
    assert code(machine, PROMOTE) == ""
    sites = machine.state.placement.sites
    assert sites.votes == {"lon": False, "nyc": True}
    assert ends(machine.state.members.cluster_id, before)
    assert sites.may_vote(1)
    assert not sites.may_vote(0)
    (event,) = [each for each in machine.state.events.remembered if each.kind == "site-promoted"]
    assert event.text == "what may be lost"
    assert sites.promotions[-1].entry == 40


def test_who_got_more_since_is_of_before(machine: StateMachine) -> None:
    sites = machine.state.placement.sites
    assert not sites.has_more(0, 9, 99), "nothing was promoted"
    machine.apply(PROMOTE)
    assert not sites.has_more(0, 3, 40), "the promotion went on behind this"
    assert not sites.has_more(0, 2, 99)
    assert sites.has_more(0, 3, 41)
    assert sites.has_more(0, 4, 1)
    assert not sites.has_more(1, 1003, 41), "it knows of the promotion"


def test_only_who_knows_of_a_promotion_says_who_stays(machine: StateMachine) -> None:
    """A member that has just followed has the cluster's id, and the state of before."""
    now, known_as = promoted_id(FIRST, ONE), staying.KnownAs(FIRST, 3, 40)
    assert staying.stays(machine.state, now, 1, 0, known_as) is False, "it is in another site"
    machine.apply(SetSiteCommand(0, "nyc"))
    machine.state.placement.sites.members = {0: "nyc", 1: "nyc"}
    assert staying.stays(machine.state, now, 1, 0, known_as) is None, "who knows"
    machine.apply(PROMOTE)
    del machine.state.members.by_number[0]
    assert staying.stays(machine.state, now, 1, 0, known_as) is False
    assert staying.stays(machine.state, now, 0, 1, known_as) is True
    more = known_as._replace(entry=41)
    assert staying.stays(machine.state, now, 0, 1, more) is False


def test_only_a_member_of_the_site_promotes_it(machine: StateMachine) -> None:
    change = {"site": "lon"}, {"site": "par"}
    codes = [code(machine, msgspec.structs.replace(PROMOTE, **each)) for each in change]
    assert codes == ["NOT_IN_SITE", "UNKNOWN_SITE"]
    assert machine.state.members.cluster_id == FIRST
    assert code(StateMachine(), PROMOTE) == "UNKNOWN_SITE"


def test_a_site_with_voters_goes_on_to_vote(machine: StateMachine) -> None:
    assert code(machine, SetSiteVotes("lon", False, 4)) == "SITE_IN_USE"
    assert code(machine, SetSiteVotes("par", True, 4)) == "UNKNOWN_SITE"
    assert code(machine, SetSiteVotes("nyc", True, 4)) == ""
    assert machine.state.placement.sites.votes == {"lon": True, "nyc": True}
    assert machine.state.events.remembered[-1].kind == "site-altered"


# --- producers ------------------------------------------------------------------------------------


def test_a_producer_goes_on_behind_what_was_lost_once(machine: StateMachine) -> None:
    (number,) = machine.state.partitions.by_number
    machine.state.partitions.by_number[number].next_offset = 50
    machine.state.producers.batches[7] = {number: [Sequence5(7, 0, 30, 39, 40)]}

    def verdict(view: DedupView, first: int, epoch: int = 0, **facts: Any) -> Verdict:
        return view.judge(BatchFacts(10, 7, epoch, first, **facts), number).verdict

    assert verdict(DedupView(machine), 60) is Verdict.OUT_OF_ORDER
    machine.apply(PROMOTE)
    view = DedupView(machine)
    assert verdict(view, 30) is Verdict.DUPLICATE, "what is here is still known"
    assert verdict(view, 20) is Verdict.OUT_OF_ORDER, "it never goes back"
    assert verdict(view, 60, epoch=1) is Verdict.OUT_OF_ORDER
    assert verdict(view, 60, is_transactional=True) is Verdict.OUT_OF_ORDER
    assert verdict(view, 60) is Verdict.TAKE
    view.add_sequence(number, Sequence5(7, 0, 60, 69, 50))
    assert verdict(view, 80) is Verdict.OUT_OF_ORDER, "it was behind the promotion"
    assert verdict(view, 70) is Verdict.TAKE


def test_a_session_whose_files_are_gone_does_not_go_on_behind_a_hole(machine: StateMachine) -> None:
    """Its publisher released what was merged at the first site, and has not come here."""
    machine.apply(OpenRunCommand("s", "s", "i", 0, "s", None, None))
    machine.apply(OpenInputCommand("s", "t" * 32, 0))
    (number,) = machine.state.partitions.by_number
    entry = machine.state.sessions.input_of("s", number)
    assert entry is not None
    machine.apply(PROMOTE)

    def merge(start: int) -> str:
        part = Range(entry.number, entry.run, entry.roll, start, start + 1, 1, 1, 0)
        base_offset = machine.state.partitions.by_number[number].next_offset
        return code(machine, Merge(number, base_offset, 1, 1, roll=False, ranges=[part]))

    assert merge(4) == "PRECONDITION"
    assert [merge(0), merge(1)] == ["", ""], "what is here goes on"


# --- whether it is done ---------------------------------------------------------------------------

STANDS = Standing(
    node="n3",
    site="nyc",
    cluster_id=FIRST,
    leads=False,
    silent_s=700.0,
    entry=40,
    term=3,
    committed=38,
    reached=("n4",),
    mates=("n4",),
    voters=("n0", "n1", "n2"),
    partitions=(),
    lost_groups=(),
)
ASKED = PromoteSite("nyc", 40, 3, confirm="c")


def why_not(asked: PromoteSite = ASKED, **changes: Any) -> str:
    try:
        check_promotion(msgspec.structs.replace(STANDS, **changes), asked)
    except ChangeRefused as refused:
        return str(refused)
    return ""


def test_a_site_is_promoted_only_when_nobody_else_is_there() -> None:
    sure = msgspec.structs.replace(ASKED, others_are_down=True)
    assert why_not() == ""
    assert "hears a leader" in why_not(sure, silent_s=9.0)
    assert "hears a leader" in why_not(sure, leads=True)
    assert "n1 can be reached" in why_not(sure, reached=("n1", "n4"))
    assert "perhaps only the line is cut" in why_not(silent_s=599.0)
    assert why_not(sure, silent_s=599.0) == ""


def test_the_newest_of_a_site_goes_on_with_all_that_are_not_given_up() -> None:
    assert "another one has more" in why_not(entry=39)
    assert "another one has more" in why_not(term=2, entry=99)
    assert "is not in site" in why_not(site="lon")
    assert "n4 of the same site cannot be reached" in why_not(reached=())
    assert why_not(msgspec.structs.replace(ASKED, without=("n4",)), reached=()) == ""


# --- who asks whom --------------------------------------------------------------------------------


def test_who_votes_asks_the_other_sites() -> None:
    members = {n: Member(n, f"n{n}", "h:1", f"samelog://node/n{n}", voter=n < 2) for n in range(4)}
    sites = Sites({"lon": True, "nyc": False}, {0: "lon", 2: "nyc", 3: "nyc"})
    there = {"nyc": [members[2], members[3]]}
    assert far_members(sites, members, 0) == there
    assert far_members(sites, members, 1) == {"lon": [members[0]], **there}, "it has said no site"
    assert far_members(sites, members, 2) == {}, "it acknowledges nothing"
    assert far_members(Sites(), members, 0) == {}


# --- whole nodes ----------------------------------------------------------------------------------


class Process:
    """A node as a process would run it."""

    def __init__(self, config: NodeConfig) -> None:
        self.lives: list[Node] = []
        self._stop = asyncio.Event()
        tls = ReloadingContext(config.tls)

        def make(place: Any) -> Node:
            given = NodeResources(config, FS, SystemClock(), tls, random.Random())
            return Node(given, bootstrap=False, place=place)

        def on_started(node: Node, port: int) -> None:
            self.lives.append(node)

        run = serve_node(
            config, make, self._stop, fs=FS, tls=tls, bootstrap=False, on_started=on_started
        )
        self.task = asyncio.create_task(run)

    async def stop(self) -> None:
        self._stop.set()
        await self.task


def config_of(path: Path, number: int) -> NodeConfig:
    cluster = LocalCluster(str(path), ClusterOptions(nodes=3))
    cluster.prepare()
    return load_node(cluster.nodes[number].config_file)


async def who_was_away_is_refused(config: NodeConfig) -> None:
    boot = read_record(FS, config.data).boot
    for _ in range(2):
        old = Process(config)
        with pytest.raises(NodeDirectoryError, match="a site was promoted without"):
            await asyncio.wait_for(old.task, PATIENCE_S)
        assert not old.lives, "it asked before it said anything"
    assert read_record(FS, config.data).boot == boot
    with pytest.raises(NodeDirectoryError, match="a site was promoted without"):
        begin_anew(FS, config, kind="majority-lost", wall_ms=1)


def far_counts(directories: list[NodeDirectory]) -> dict[int, int]:
    """How many members of other sites each node knows, by its number."""
    return {each.record.number: sum(map(len, each.far.values())) for each in directories}


def has_followed(mate: Process, first: Node) -> bool:
    """It may hear of the promotion before its first life has begun, or after."""
    return bool(mate.lives) and mate.lives[-1].life.cluster_id == first.life.cluster_id


def newest_first(path: Path, *numbers: int) -> list[int]:
    """Nodes by their logs: the newest one of a site is promoted (S4)."""
    found = {number: look(FS, config_of(path, number)) for number in numbers}
    ends = {number: (each.last_term, each.last_index) for number, each in found.items()}
    return sorted(numbers, key=lambda number: ends[number], reverse=True)


def test_who_is_of_before_takes_no_part_and_who_stays_follows(
    tmp_path: Path, in_loop: InLoop, run_with: RunWith
) -> None:
    """n0 and n2 are in nyc, n1 is in lon, which is lost. The one of nyc with the newest entry
    goes on, the other one with it.
    """
    session = Session("a")

    async def before(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        for node in nodes:
            node.peers.whereabouts._site = SITE_OF[node.peers.number]
        propose = leader.raft.proposer.propose
        for command in (AddSite("lon", True, 1), AddSite("nyc", True, 1)):
            await propose(command)
        await session.send(nodes, batch(b"1", b"2"))
        await until(lambda: all(offset(node) == 2 for node in nodes), "2 records everywhere")
        sites = [node.cluster.placement.sites for node in nodes]
        await until(lambda: all(len(each.members) == 3 for each in sites), "all are in sites")
        there = [node.member.directory for node in nodes]
        away = {0: 1, 1: 2, 2: 1}
        await until(lambda: far_counts(there) == away, "they know all of the other site")

    async def afterwards() -> None:
        first = Process(config_of(tmp_path, newest))
        try:
            await until(lambda: bool(first.lives), "it has begun")
            await until(lambda: first.lives[-1].raft.group.is_leader, "it leads")
            await who_was_away_is_refused(config_of(tmp_path, 1))
            await the_mate_follows(first.lives[-1])
        finally:
            await first.stop()

    async def the_mate_follows(first: Node) -> None:
        mate = Process(config_of(tmp_path, other))
        try:
            await until(lambda: has_followed(mate, first), "the other one of the site begins again")
            await session.send([first], batch(b"3"))
            await until(lambda: offset(mate.lives[-1]) == 3, "it has what came since")
            assert 1 not in first.raft.group.raft.voters
        finally:
            await mate.stop()

    run_with(tmp_path, 3, before)
    newest, other = newest_first(tmp_path, 0, 2)
    promotes = SitePromotion(site="nyc", promotion=ONE)
    mate = config_of(tmp_path, other).name
    begin_anew(
        FS,
        config_of(tmp_path, newest),
        kind="site-promoted",
        wall_ms=1,
        others=[mate],
        promotes=promotes,
    )
    in_loop(afterwards())


def test_a_running_node_of_before_ends_when_it_hears_of_a_promotion(
    tmp_path: Path, run_with: RunWith
) -> None:
    """It dials one that was promoted while it ran: it counts for nothing from then on."""

    async def body(nodes: list[Node]) -> None:
        leader = await leader_of(nodes)
        mine = leader.life.cluster_id
        events = leader._events
        events.on_superseded(Superseded(mine, stays=False))
        assert leader.raft.group.is_leader, "it is not of before its own cluster"
        events.on_superseded(Superseded(f"{mine}-1-{ONE}", stays=False))
        assert not leader.raft.group.is_leader
        assert not leader.raft.group.raft.may_vote
        with pytest.raises(SiteWasPromoted):
            await asyncio.wait_for(leader.run_until_failure(), PATIENCE_S)

    run_with(tmp_path, 3, body)


def test_wrong_cluster_is_said_of_promotions_beside_each_other() -> None:
    def life(cluster_id: str) -> Life:
        return Life(
            1, "a", (), is_sure=True, cluster_id=cluster_id, term=0, last_index=0, last_term=0
        )

    with pytest.raises(ProtocolFault) as refused:
        contradiction(life(f"{FIRST}-1-{ONE}"), life(f"{FIRST}-1-{'b' * 16}"), NEVER_SEEN, ())
    assert refused.value.code is FaultCode.WRONG_CLUSTER
