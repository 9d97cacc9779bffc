"""Bits turned at rest: in every kind of file, on a minority, a majority, on all nodes.

A node that refuses to start with a damaged directory is dealt with as its own message says: the
directory is set aside, and the node starts with an empty one. Where too many nodes refuse for that,
the bits are turned back, as an operator would restore a backup.

Invariant: what a scenario turns, and what each node made of it, is in the row's remarks.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from samelog.config.tables.node import Scrub
from samelog.format import _kernels as kernels
from tests.chaos.faults.rot import KINDS, Rot, files_of, turn
from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import Expect, scenario

GATHER_S = 3.0
DATA_KINDS = ("session log", "merged segment", "offset index", "time index", "merged marks")
DEAD_KINDS = ("Raft log", "Raft snapshot", "session.json", "partition.json", "node.json")


def _refuses(field: Field, node: ChaosNode) -> bool:
    """Start a node; whether it ends again by itself."""
    node.start()
    field.wait_for(lambda: node.pid is None or field.is_live(node), f"{node.name} decides")
    return node.pid is None or node.wait_end(0.2)


def _replace(field: Field, node: ChaosNode) -> None:
    """What the node's message tells an operator to do."""
    aside = f"{node.data}.aside-{node.starts}"
    os.rename(node.data, aside)
    node.start()
    field.wait_for(lambda: field.is_live(node), f"{node.name} is Live with an empty directory")


def _damage(field: Field, node: ChaosNode, kind: str) -> Rot | None:
    node.kill()
    rot = turn(Path(node.data), kind, field.random)
    if rot is None:
        field.remarks.append(f"{kind}: no such file")
    return rot


@scenario("rot-minority", seconds=0)
def rot_minority(field: Field) -> None:
    """One bit turned in each kind of file of one follower in turn, while it is stopped."""
    node = field.follower()
    for kind in KINDS:
        wait(GATHER_S)
        rot = _damage(field, node, kind)
        if _refuses(field, node):
            field.remarks.append(f"{kind}: refuses to start: {_reason(node)}")
            _replace(field, node)
        elif rot is not None:
            field.remarks.append(f"{kind} ({rot.place}): starts")


def _reason(node: ChaosNode) -> str:
    return node.last_log_line().replace(os.path.dirname(node.data) + "/", "")[:160]


def _rot_many(field: Field, victims: list[ChaosNode], kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        wait(GATHER_S)
        for node in victims:
            node.kill()
        rots = [rot for node in victims if (rot := turn(Path(node.data), kind, field.random))]
        refusing = _start_all(field, victims)
        field.remarks.append(f"{kind}: {len(refusing)} of {len(rots)} refuse to start")
        for rot in rots:
            if any(str(rot.path).startswith(node.data) for node in refusing):
                rot.undo()
        for node in refusing:
            node.start()
        field.wait_live()


def _start_all(field: Field, victims: list[ChaosNode]) -> list[ChaosNode]:
    """Start nodes; those that end again."""
    for node in victims:
        node.start()
    field.wait_for(lambda: _have_decided(field, victims), "each node starts or refuses to")
    return [node for node in victims if node.pid is None]


def _have_decided(field: Field, nodes: list[ChaosNode]) -> bool:
    """Whether each has ended or is Live; without a majority none gets Live."""
    left = [node for node in nodes if node.pid is not None]
    return 2 * (len(nodes) - len(left)) > len(field.nodes) or all(map(field.is_live, left))


@scenario("rot-majority", seconds=0, expect=Expect.NOTICED)
def rot_majority(field: Field) -> None:
    """One bit turned in each kind of data file of two nodes at once, in different places."""
    _rot_many(field, field.random.sample(field.nodes, 2), DATA_KINDS)


@scenario("rot-all", seconds=0, expect=Expect.NOTICED)
def rot_all(field: Field) -> None:
    """One bit turned in each kind of data file of all nodes at once, in different places."""
    _rot_many(field, field.nodes, DATA_KINDS)


@scenario("rot-majority-metadata", seconds=0, expect=Expect.NOTICED)
def rot_majority_metadata(field: Field) -> None:
    """One bit turned in the same kind of metadata of two nodes at once."""
    _rot_many(field, field.random.sample(field.nodes, 2), DEAD_KINDS)


@scenario("rot-read", seconds=0, expect=Expect.NOTICED)
def rot_read(field: Field) -> None:
    """One bit turned in a closed segment of each node, in different places; then all is read once
    more. No node alone can give a new subscriber everything, all of them together can.
    """
    wait(3 * GATHER_S)
    for node in field.nodes:
        field.wait_for(partial(_has_closed_one, node), f"{node.name} closes a segment")
        node.kill()
        _turn_in_a_batch(field, node, field.random.choice(_segments(node)[:-1]))
        node.start()
        field.wait_live()
    field.subscriber.kill()
    shutil.rmtree(field.subscriber.directory / field.subscriber.name)
    field.begin(field.subscriber)


def _scrub_often(field: Field) -> None:
    for node in field.nodes:
        node.change(lambda config: replace(config, scrub=Scrub(bytes_per_s=1 << 28, interval_s=1)))


@scenario("rot-scrubbed", prepare=_scrub_often, seconds=0)
def rot_scrubbed(field: Field) -> None:
    """One bit turned in a batch of each node in turn, while it runs; each is mended by itself."""
    wait(3 * GATHER_S)
    for node in field.nodes:
        file = field.random.choice(_segments(node))
        before = file.read_bytes()
        rot = _turn_in_a_batch(field, node, file)
        before = before[: rot.position + 1]

        def is_mended(rot: Rot = rot, before: bytes = before) -> bool:
            return rot.path.read_bytes()[: len(before)] == before

        field.wait_for(is_mended, f"{node.name} mends {rot.place}")


def _segments(node: ChaosNode) -> list[Path]:
    """A node's merged segments; the last is still written to."""
    return sorted(files_of(Path(node.data), "merged segment"))


def _has_closed_one(node: ChaosNode) -> bool:
    return len(_segments(node)) > 1


def _turn_in_a_batch(field: Field, node: ChaosNode, file: Path) -> Rot:
    rot = Rot(file, _place_in_a_batch(file.read_bytes(), field.random), 1)
    rot.apply()
    field.remarks.append(f"{node.name}: {rot.place}")
    return rot


def _place_in_a_batch(data: bytes, chance: Random) -> int:
    """A byte of a whole batch, but for its leader epoch, which only a segment's end tells."""
    batches = kernels.batch_headers(data, 0, kernels.scan(data).end)
    start, size, *_ = chance.choice(batches)
    covered: list[int] = [*range(start, start + 12), *range(start + 16, start + size)]
    return chance.choice(covered)
