"""Real processes: a batch that is damaged on all nodes is given up, and everything goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

SMALL_BATCHES = 40


def run(world: World, *arguments: str) -> tuple[int, Any, str]:
    """(exit code, JSON, talk) of a command."""
    one = world.only(world.cluster.nodes[-1])
    done = samelog(*arguments, "--config", one, "--json")
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def spoil(data: str, value: bytes) -> None:
    """Turn a bit of a record in the merged log, whose marks spare the reading, and in the session
    log, from which it would be merged again.
    """
    os.unlink(Path(data, "merged", "t-0", "marks"))
    for file in (*Path(data, "merged", "t-0").glob("*.log"), *Path(data).glob("sessions/*/*/log*")):
        content = bytearray(file.read_bytes())
        if value in content:
            content[content.index(value)] ^= 1
            file.write_bytes(content)


def test_a_batch_that_is_damaged_everywhere_is_given_up_by_an_operator(world: World) -> None:
    with world.publisher("a") as publisher:
        for number in range(SMALL_BATCHES):
            publisher.append(b"value %04d" % number)
            publisher.flush()
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(SMALL_BATCHES)
    assert "does not miss" in run(world, "recover", "void", "t", "0")[2]
    for node in world.cluster.nodes:
        node.stop()
    for node in world.cluster.nodes:
        spoil(node.data, b"value 0020")
    for node in world.cluster.nodes:
        node.start()

    def is_given_up() -> bool:
        code, found, talk = run(world, "recover", "void", "t", "0")
        if found is None or len(found["copies"]) < 3:
            return False
        assert (found["first_offset"], found["next_offset"], found["done"]) == (20, 21, False)
        assert code == 1
        assert "--confirm t" in talk
        return True

    wait_for(is_given_up, "all nodes say that they miss the record for good")

    def is_void() -> bool:
        """What a node misses for good may change while peers come and go, so it is asked again."""
        code, found, _ = run(world, "recover", "void", "t", "0", "--confirm", "t")
        assert found is None or found["done"]
        return code == 0 or bool(run(world, "status")[1]["events"])

    wait_for(is_void, "the record is given up")
    world.wait_offset(SMALL_BATCHES)
    with world.publisher("b") as publisher:
        publisher.append(b"and on")
        publisher.wait_merged(timeout=PATIENCE_S)
    world.wait_offset(SMALL_BATCHES + 1)
    world.assert_identical()
    wanted = [b"value %04d" % number for number in range(SMALL_BATCHES) if number != 20]
    records = world.read(SMALL_BATCHES)
    assert [record.value for record in records] == [*wanted, b"and on"]
    assert [record.offset for record in records if record.offset > 18][:3] == [19, 21, 22]
    assert world.copied_bytes() == world.merged_bytes(world.cluster.nodes[0])
    events = run(world, "status")[1]["events"]
    assert [event["kind"] for event in events] == ["void"]
