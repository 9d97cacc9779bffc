"""How fast the Raft core is by itself: three nodes in one thread, no disk, no network, no codec.

    python -m bench.raft [--seconds 2] [--batches 1,10,100,1000]

A round is: propose one batch, replicate it to both followers, commit and apply it on all three
nodes, the commit index told to the followers at once. Prints rounds and entries per second, by
batch size.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque

from samelog.consensus import HardState, Raft, RaftConfig, Role, Snapshot

NODES = (0, 1, 2)
ENTRY = b"x" * 64
CUT_EVERY_ENTRIES = 20_000


def make_group() -> list[Raft]:
    """Three fresh nodes, node 0 elected."""
    nodes = [
        Raft(
            node,
            NODES,
            config=RaftConfig(),
            random=random.Random(node),
            now=0.0,
            snapshot=None,
            entries=[],
            hard_state=HardState(0, None, 0),
        )
        for node in NODES
    ]
    nodes[0].tick(10.0)
    settle(nodes)
    if nodes[0].role is not Role.LEADER:
        raise RuntimeError("node 0 was not elected")
    return nodes


def settle(nodes: list[Raft]) -> int:
    """Carry out effects, of nodes that got something to do, until there are none left.

    Answers how many entries were applied, by all nodes together.
    """
    applied = 0
    touched = deque([0])
    while touched:
        sender = touched.popleft()
        node = nodes[sender]
        while effects := node.take_effects():
            for to, message in effects.send:
                nodes[to].step(sender, message, 10.0)
                touched.append(to)
            if effects.must_sync or effects.send_after_save:
                node.saved(effects.token)
                for to, message in effects.send_after_save:
                    nodes[to].step(sender, message, 10.0)
                    touched.append(to)
            applied += len(effects.apply)
    return applied


def cut_logs(nodes: list[Raft]) -> None:
    """Keep memory bounded, as a real node does."""
    for node in nodes:
        index = node.applied_index
        node.compact(index, Snapshot(index, node.term_at(index) or 0, NODES, (), b"state"))


def measure(batch: int, seconds: float) -> tuple[float, float]:
    """(rounds/s, entries/s) with so many entries in each proposal."""
    nodes = make_group()
    data = [ENTRY] * batch
    rounds = 0
    begin = time.perf_counter()
    end = begin + seconds
    while time.perf_counter() < end:
        nodes[0].propose(data, 10.0)
        if settle(nodes) != 3 * batch:
            raise RuntimeError("a round did not commit everywhere")
        rounds += 1
        if rounds * batch % CUT_EVERY_ENTRIES == 0:
            cut_logs(nodes)
    elapsed = time.perf_counter() - begin
    return rounds / elapsed, rounds * batch / elapsed


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batches", default="1,10,100,1000")
    arguments = parser.parse_args()
    print(f"{'batch':>6} {'rounds/s':>12} {'entries/s':>12}")
    for batch in map(int, arguments.batches.split(",")):
        rounds, entries = measure(batch, arguments.seconds)
        print(f"{batch:>6} {rounds:>12,.0f} {entries:>12,.0f}")


if __name__ == "__main__":
    main()
