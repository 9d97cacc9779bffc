"""Staged records on a real cluster: published all at once, once, whoever dies in between."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from msgspec import UNSET, UnsetType

from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic, SetSchema, StagedRun
from samelog.config.tables.client import ClientConfig
from samelog.publisher import RowMisfit
from samelog.publisher.errors import NotStaged
from samelog.publisher.row_checks import RowChecks
from samelog.publisher.staging import StagedWriter, drop_stage, publish_stage
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S
from tests.typed.known import schema_text

PARTITIONS = 3
COPIES = itertools.count()


@pytest.fixture
def staged(world: World) -> World:
    ask(world.cluster.client_config(), CreateTopic("t", PARTITIONS, {}))
    return world


def stage(world: World, values: list[bytes], *, kill: bool = False) -> StagedRun:
    """What a task of a batch does."""
    config = world.cluster.client_config()
    with StagedWriter("t", stage="sink", config=config, partitions=PARTITIONS) as writer:
        for number, value in enumerate(values):
            writer.publisher.append(value, partition=number % PARTITIONS)
        if kill:
            world.leader().kill()
        held = writer.hold()
        assert held is not None
        return held


def publish(world: World, batch: int, runs: list[StagedRun], writer: str = "query") -> bool:
    config = world.cluster.client_config()
    return publish_stage(config, stage="sink", writer=writer, batch=batch, runs=runs)


def values(world: World) -> list[bytes]:
    """All records that anybody can read, by a fresh copy."""
    with world.subscriber(f"copy{next(COPIES)}") as subscriber:
        subscriber.wait_caught_up(PATIENCE_S)
        return sorted(record.value or b"" for record in subscriber.present())


def test_a_batch_is_published_whole_and_once(staged: World) -> None:
    tasks = [[b"%d.%d" % (task, number) for number in range(20)] for task in range(4)]
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda task: stage(staged, task), tasks))
    with staged.publisher("plain") as publisher:
        publisher.append(b"plain")
        publisher.wait_merged(timeout=PATIENCE_S)
    wait_for(lambda: values(staged) == [b"plain"], "what is not staged can be read, and only that")
    assert publish(staged, 0, runs)
    everything = sorted([b"plain", *(value for task in tasks for value in task)])
    wait_for(lambda: values(staged) == everything, "all of the batch")
    again = stage(staged, tasks[0])
    assert not publish(staged, 0, [again])
    with pytest.raises(NotStaged, match="has published batches up to 0"):
        publish(staged, 0, [stage(staged, tasks[0])], writer="another query")
    given_up = stage(staged, [b"given up"])
    drop_stage(staged.cluster.client_config(), stage="sink", runs=[given_up])
    with pytest.raises(NotStaged, match="closed"):
        publish(staged, 1, [given_up])
    assert publish(staged, 1, [stage(staged, [b"second"])])
    wait_for(lambda: values(staged) == sorted([*everything, b"second"]), "the second batch")
    staged.assert_identical()


def test_the_leader_dies_while_a_batch_is_staged_and_published(staged: World) -> None:
    first = stage(staged, [b"a%d" % number for number in range(9)])
    dead = staged.leader()
    second = stage(staged, [b"b%d" % number for number in range(9)], kill=True)
    dead.start()
    staged.wait_live(dead)
    leader = staged.leader()
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish, staged, 7, [first, second])
        leader.kill()
        publishing.result(PATIENCE_S)
    leader.start()
    staged.wait_live(leader)
    wanted = sorted(b"%c%d" % (letter, number) for letter in b"ab" for number in range(9))
    wait_for(lambda: values(staged) == wanted, "both tasks' records, once")
    assert not publish(staged, 7, [stage(staged, [b"replayed"])])
    assert values(staged) == wanted


@pytest.mark.parametrize("copies", [UNSET, 2], ids=["on every node", "in data groups"])
def test_nodes_publish_what_fits_its_marks(
    world: World, copies: int | UnsetType, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, settings = world.cluster.client_config(), {"schema.enforce": "node"}
    ask(config, CreateTopic("t", PARTITIONS, settings, copies))
    ask(config, SetSchema("t", schema_text("a int32"), 0))
    good, bad = pa.table({"value": [b'{"a":1}'] * 5}), pa.table({"value": [b'{"a":"x"}']})
    with staged_writer(config) as writer:
        with pytest.raises(RowMisfit, match="column 'a': not int32"):
            writer.append_arrow(bad)
        writer.append_arrow(good)
        held = writer.hold()
        assert held is not None
        assert publish(world, 0, [held])
    wait_for(lambda: values(world) == [b'{"a":1}'] * 5, "what fits is published")
    monkeypatch.setattr(RowChecks, "check", lambda self, topic, values, headers: None)
    for value, headers, why in [
        (b'{"a":1}', (), "says its version"),
        (b'{"a":"x"}', (("samelog.schema", b"1"),), "column 'a': not int32"),
    ]:
        with staged_writer(config) as writer:
            writer.publisher.append(value, headers=headers)  # whoever does not check itself
            held = writer.hold()
            assert held is not None
            with pytest.raises(NotStaged, match=why):
                publish(world, 1, [held])
            drop_stage(config, stage="sink", runs=[held])
    assert values(world) == [b'{"a":1}'] * 5


def staged_writer(config: ClientConfig) -> StagedWriter:
    return StagedWriter("t", stage="sink", config=config, partitions=PARTITIONS)
