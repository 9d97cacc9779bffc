"""Scenarios of whole groups: commands, and everything that the nodes do because of them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from samelog.consensus import Busy, ChangePending, NotLeader, RaftConfig
from tests import scenario_files
from tests.consensus.group import Group

FILES = scenario_files.files(__file__)


class GroupScript(scenario_files.Commands):
    """Runs the commands of one scenario."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(1)

    def run(self, line: str) -> list[str]:
        """Carry out one command; the trace it leaves."""
        self.group.trace = self.trace
        return super().run(line)

    def do_group(self, *arguments: str) -> None:
        """`group voters=3 [learners=1] [chunk=100] [uncommitted=100] [append=100]`: fresh nodes."""
        options = dict(argument.split("=") for argument in arguments)
        config = RaftConfig(
            snapshot_chunk_bytes=int(options.get("chunk", 256 << 10)),
            max_uncommitted_bytes=int(options.get("uncommitted", 64 << 20)),
            max_append_bytes=int(options.get("append", 1 << 20)),
        )
        voters, learners = int(options["voters"]), int(options.get("learners", 0))
        self.group = Group(voters, learners=learners, config=config)
        self.group.trace = self.trace

    def do_timeout(self, node: str) -> None:
        """`timeout N`: node N's next deadline passes."""
        self.group.timeout(int(node))

    def do_wait(self, seconds: str) -> None:
        """`wait S`: time passes for everybody."""
        self.group.wait(float(seconds))

    def do_quietly(self, *words: str) -> None:
        """`quietly COMMAND`: without its trace."""
        self.run(shlex.join(words))
        self.trace.clear()

    def do_propose(self, node: str, *data: str) -> None:
        """`propose N DATA`...: propose entries at node N."""
        try:
            self.group.propose(int(node), *(item.encode() for item in data))
        except (NotLeader, Busy) as error:
            self.group.trace.append(f"{node} refuses: {type(error).__name__}: {error}")

    def do_join(self) -> None:
        """`join`: one more node, with an empty disk."""
        self.group.join()

    def do_configure(self, node: str, voters: str, learners: str = "") -> None:
        """`configure N 0,1,2 [3]`: propose these voters and learners at node N."""
        members = [[int(item) for item in text.split(",") if item] for text in (voters, learners)]
        try:
            self.group.configure(int(node), *members)
        except (NotLeader, ChangePending, ValueError) as error:
            self.group.trace.append(f"{node} refuses: {type(error).__name__}: {error}")

    def do_read(self, node: str, context: str) -> None:
        """`read N C`: a read, with context C, at node N."""
        self.group[int(node)].read_index(int(context), self.group.now)
        self.group.settle()

    def do_transfer(self, node: str, to: str) -> None:
        """`transfer N M`: leader N hands over to M."""
        self.group[int(node)].transfer_leadership(int(to), self.group.now)
        self.group.settle()

    def do_leader_lost(self, *nodes: str) -> None:
        """`leader-lost N`...: these nodes see their connection to the leader break."""
        for node in nodes:
            self.group[int(node)].leader_lost(self.group.now)
        self.group.settle()

    def do_compact(self, node: str, index: str, size: str) -> None:
        """`compact N I B`: node N snapshots its state (B bytes) and cuts its log at I."""
        self.group.compact(int(node), int(index), b"s" * int(size))

    def do_isolate(self, node: str) -> None:
        """`isolate N`: cut node N off."""
        self.group.isolate(int(node))

    def do_cut(self, node: str, to: str) -> None:
        """`cut N M`: M hears nothing of N any more."""
        self.group.cuts.add((int(node), int(to)))

    def do_introduce(self, node: str, to: str) -> None:
        """`introduce N M`: M learns that N has restarted."""
        self.group[int(to)].peer_restarted(int(node))
        self.group.settle()

    def do_mend(self) -> None:
        """`mend`: no cut is left."""
        self.group.mend()

    def do_late(self) -> None:
        """`late`: what did not arrive so far arrives now."""
        self.group.queue.extend(self.group.dropped)
        self.group.dropped.clear()
        self.group.settle()

    def do_crash(self, node: str) -> None:
        """`crash N`."""
        self.group.crash(int(node))

    def do_wipe(self, node: str) -> None:
        """`wipe N`: the crashed node N loses its disk."""
        self.group.wipe(int(node))

    def do_lose(self, node: str, index: str) -> None:
        """`lose N I`: the crashed node N loses its entries from I on, which were not synced."""
        self.group.lose(int(node), int(index))

    def do_restart(self, node: str) -> None:
        """`restart N`."""
        self.group.restart(int(node))

    def do_hold_disk(self, node: str) -> None:
        """`hold-disk N`: saves of node N don't end."""
        self.group.hold_disk(int(node))

    def do_release_disk(self, node: str) -> None:
        """`release-disk N`: they end."""
        self.group.release_disk(int(node))

    def do_status(self) -> None:
        """`status`: what everybody is."""
        for number, node in enumerate(self.group.nodes):
            raft = node.raft
            self.group.trace.append(
                f"{number} {raft.role.value} term={raft.term} leader={raft.leader} "
                f"log={raft.first_index}..{raft.last_index} commit={raft.commit_index}"
                + (" doubtful" if raft.is_doubtful else "")
                + (" elected in doubt" if raft.is_elected_in_doubt else "")
            )

    def do_members(self) -> None:
        """`members`: by whom everybody goes."""
        for number, node in enumerate(self.group.nodes):
            members = node.raft.membership
            self.group.trace.append(f"{number} {members.voters} learners {members.learners}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    scenario_files.check(path, GroupScript(), request)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
