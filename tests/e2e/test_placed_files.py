"""Files of data groups: copied, archived, restored, verified, mended and given up as others are, by
commands that know one node only, which has none of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from samelog import Publisher, Record, Subscriber
from samelog.admin.client import ask, log_history
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import CreateTopic, PlanArchive
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.config.schema.render import to_toml
from samelog.format.file_names import segment_bases
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

RECORD = b"x" * 40_000
"""Two of them fill a segment."""
COUNT = 12
KEPT_BYTES = 100 << 10


class PlacedWorld(World):
    """Three nodes; the topic `t` of one partition has two copies, clients know the third node."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        super().__init__(cluster, directory)
        config = cluster.client_config()
        ask(config, CreateTopic("t", 1, {}, 2))
        known = ask(config, GetPlacement())
        [self.place] = [each for each in known.partitions if each.topic == "t"]
        seed = next(node for node in cluster.nodes if node.name not in self.place.replicas)
        self.holders = [node for node in cluster.nodes if node is not seed]
        told = replace(config, nodes=(seed.address,), node_names=(seed.name,))
        self.seed = str(directory / "seed.toml")
        Path(self.seed).write_text(to_toml(told), encoding="utf-8")

    def logs(self, node: LocalNode) -> Path:
        return Path(node.data, "groups", str(self.place.group), "merged", "t-0")

    def write(self, session: str, values: list[bytes]) -> None:
        """Each of which is merged by itself."""
        with Publisher(
            "t", session=session, config=self.seed, directory=str(self.directory / "publishers")
        ) as publisher:
            for value in values:
                publisher.append(value)
                publisher.wait_merged(PATIENCE_S)

    def has(self, node: LocalNode, offset: int) -> bool:
        status = self.status(node)
        return status is not None and any(
            (each.topic, each.end_offset) == ("t", offset) for each in status.partitions
        )

    def wait_everywhere(self, offset: int) -> None:
        for node in self.holders:
            wait_for(partial(self.has, node, offset), f"{node.name} has {offset}")

    def files(self, node: LocalNode) -> dict[int, bytes]:
        """The segments that are not archived, by their first offset."""
        names = sorted(each.name for each in self.logs(node).iterdir())
        found = ((base, self.logs(node) / f"{base:020d}.log") for base in segment_bases(names))
        return {base: file.read_bytes() for base, file in found if file.stat().st_size}


@contextmanager
def placed(tmp_path: Path, copy_to: Path | None = None) -> Iterator[PlacedWorld]:
    """With `copy_to`: segments are copied there before what is above 100 KiB is archived."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"time": 0, "limit": KEPT_BYTES, "disk": 100}))
    options = ClusterOptions(segment_bytes=1 << 16)
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.prepare()
        for node in cluster.nodes if copy_to is not None else ():
            file = Path(node.config_file)
            text = file.read_text().replace("interval_s = 10.0", "interval_s = 0.2")
            lines = ["[archive]", f"policy = {json.dumps(str(policy))}"]
            lines += [f"copy_to = {json.dumps(str(copy_to))}"]
            lines += ['copy_formats = ["segments", "parquet"]']
            file.write_text(text.replace("[archive]", "\n".join(lines)))
        cluster.start()
        yield PlacedWorld(cluster, tmp_path)


def values_of(records: list[Record]) -> list[bytes | None]:
    return [each.value for each in records]


@pytest.mark.usefixtures("starts_nodes")
def test_what_is_archived_of_a_data_group_comes_back_from_its_copies(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with placed(tmp_path, target) as world:
        values = [b"%d" % number + RECORD for number in range(COUNT)]
        world.write("p", values)

        def is_archived() -> bool:
            sizes = (sum(map(len, world.files(node).values())) for node in world.holders)
            return all(size <= KEPT_BYTES for size in sizes)

        wait_for(is_archived, "archived on both nodes")
        files = list(log_history(world.seed, "t"))
        gone = [each for each in files if each.archived_ms >= 0]
        assert gone
        assert files[0].first_offset == 0
        assert files[-1].next_offset == COUNT
        assert {each.copy_url for each in gone} == {str(target)}
        assert {each.copy_formats for each in gone} == {"segments,parquet"}
        for kind in (SEGMENTS, PARQUET):
            back = tmp_path / f"back-{kind}"
            restored = as_json(
                *("restore", "t", "--to", str(back), "--format", kind, "--config", world.seed)
            )
            end = restored["next_offset"]  # more may have been copied, and archived, since
            assert restored["first_offset"] == 0
            assert gone[-1].next_offset <= end <= COUNT
            with Subscriber("t", directory=str(back), follow=False) as subscriber:
                found = list(subscriber.present())
            assert values_of(found) == values[:end]
        assert as_json("verify", str(tmp_path / "back-segments"))["verified"]
        plan = ask(world.cluster.client_config(), PlanArchive())
        assert plan.data_groups == 1
        verify(world)


def verify(world: PlacedWorld) -> None:
    """The data directories of all nodes; then a bit of a record is another one."""
    directories = [node.data for node in world.cluster.nodes]
    found = as_json("verify", *directories)
    mine = [each for each in found["copies"] if each["topic"] == "t"]
    assert found["verified"]
    assert [each["end_offset"] for each in mine] == [COUNT, COUNT]
    assert len({each["checksum"] for each in mine}) == 1
    world.cluster.stop()
    place = world.logs(world.holders[0])
    file = sorted(each for each in place.glob("*.log") if each.stat().st_size)[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    (place / "marks").unlink(missing_ok=True)
    ended = samelog("verify", *directories)
    assert ended.returncode == 1
    assert str(place) in ended.stderr


@pytest.mark.usefixtures("starts_nodes")
def test_a_file_of_a_data_group_that_somebody_removes_comes_back(tmp_path: Path) -> None:
    with placed(tmp_path) as world:
        world.write("p", [b"%d" % number + RECORD for number in range(COUNT)])
        world.wait_everywhere(COUNT)
        node, other = world.holders
        gone = sorted(world.logs(node).glob("*.log"))[1]
        gone.unlink()
        wait_for(lambda: world.files(node) == world.files(other), "the file is back")

        def is_told() -> bool:
            events = as_json("status", "--config", world.seed)["events"]
            return any(each["kind"] == "file-lost" and str(gone) in each["text"] for each in events)

        wait_for(is_told, "an event, of whoever is asked")


@pytest.mark.usefixtures("starts_nodes")
def test_what_a_data_group_has_nowhere_any_more_is_given_up(tmp_path: Path) -> None:
    with placed(tmp_path) as world:
        values = [b"value %04d" % number for number in range(COUNT)]
        world.write("p", values)
        world.wait_everywhere(COUNT)
        for node in world.holders:
            node.stop()
        for node in world.holders:
            spoil(world, node, b"value 0005")
        for node in world.holders:
            node.start()
        command = ("recover", "void", "t", "0", "--config", world.seed)

        def is_void() -> bool:
            samelog(*command, "--confirm", "t")
            events = as_json("status", "--config", world.seed)["events"]
            return "void" in {each["kind"] for each in events}

        wait_for(is_void, "the record is given up, and whoever is asked says so")
        world.write("q", [b"and on"])
        world.wait_everywhere(COUNT + 1)
        first, second = map(world.files, world.holders)
        assert first == second
        with Subscriber(
            "t", directory=str(tmp_path / "copy"), config=world.seed, start="earliest"
        ) as subscriber:
            found: list[Record] = []

            def has_all() -> bool:
                found.extend(subscriber.batch(timeout=0.5))
                return len(found) >= COUNT

            wait_for(has_all, "what is left")
        assert values_of(found) == [*values[:5], *values[6:], b"and on"]


def spoil(world: PlacedWorld, node: LocalNode, value: bytes) -> None:
    """A bit of a record differs, in the merged log and in what it would be merged from again."""
    (world.logs(node) / "marks").unlink(missing_ok=True)
    group = Path(node.data, "groups", str(world.place.group))
    for file in (*world.logs(node).glob("*.log"), *group.glob("sessions/*/*/log*")):
        content = bytearray(file.read_bytes())
        if value in content:
            content[content.index(value)] ^= 1
            file.write_bytes(content)
    assert os.path.isdir(group)
