"""Copies before archiving, and bringing them back, with real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from samelog import Record, Subscriber, log_history
from samelog.admin.answers import CopyProgress
from samelog.admin.client import ask
from samelog.admin.requests import PlanArchive
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS
from samelog.archiver.copies.restoring import find_copied_log, manifests_of
from samelog.archiver.copies.targets import open_target
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.format.file_names import segment_bases
from samelog.store.merged.check import check_all, find_copies
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.e2e.object_store import ENVIRONMENT, object_store, url_of
from tests.patience import PATIENCE_S

RECORD = b"x" * 40_000
"""Two of them fill a segment."""
COUNT = 12
CLOCKS_DIFFER_MS = 60_000
"""A copy has the time of the host that made it, an archived file that of a majority."""
KEPT_BYTES = 100 << 10


@contextmanager
def copying(tmp_path: Path, copy_to: str) -> Iterator[World]:
    """Three nodes that copy to a target before they archive what is above 100 KiB."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"time": 0, "limit": KEPT_BYTES, "disk": 100}))
    options = ClusterOptions(segment_bytes=1 << 16)
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.prepare()
        for node in cluster.nodes:
            file = Path(node.config_file)
            text = file.read_text().replace("interval_s = 10.0", "interval_s = 0.2")
            lines = ["[archive]", f"policy = {json.dumps(str(policy))}"]
            lines += [f"copy_to = {json.dumps(copy_to)}", 'copy_formats = ["segments", "parquet"]']
            file.write_text(text.replace("[archive]", "\n".join(lines)))
        cluster.start()
        yield World(cluster, tmp_path)


def write(world: World) -> list[Record]:
    """Records, each of which is merged by itself; as a subscriber reads them, before any can be
    archived.
    """
    found: list[Record] = []
    subscriber: Subscriber | None = None
    with world.publisher("p") as publisher, ExitStack() as stack:
        for number in range(COUNT):
            text = b"%d" % number
            publisher.append(text + RECORD, key=text, headers=[("n", text), ("none", None)])
            publisher.wait_merged(PATIENCE_S)
            if subscriber is None:
                subscriber = stack.enter_context(world.subscriber())
            found += subscriber.batch(max_records=1, timeout=PATIENCE_S)
    assert len(found) == COUNT
    return found


def truncated(world: World) -> set[int]:
    """The base offsets of segments that some node has truncated."""
    found = set()
    for node in world.cluster.nodes:
        place = Path(node.data, "merged", "t-0")
        files = {base: place / f"{base:020d}.log" for base in segment_bases(map(str, names(place)))}
        newest = max(files, default=0)
        found |= {
            base for base, file in files.items() if file.stat().st_size == 0 and base < newest
        }
    return found


def names(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()] if place.exists() else []


def is_archived(world: World) -> bool:
    """Whether every node keeps no more than the policy allows."""
    places = [Path(node.data, "merged", "t-0") for node in world.cluster.nodes]
    return all(sum(f.stat().st_size for f in place.glob("*.log")) <= KEPT_BYTES for place in places)


def copied(target: str) -> dict[int, set[str]]:
    """The base offsets of segments with a manifest, and their formats."""
    there = open_target(target)
    found = manifests_of(there, find_copied_log(there, "t", 0, cluster=None))
    return {each.first_offset: set(each.files) for each in found}


def state(world: World) -> CopyProgress:
    """How copying goes, as the leader says."""
    return ask(world.cluster.client_config(), PlanArchive()).copies


def facts(records: list[Record]) -> list[tuple[object, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


def records_in(directory: Path) -> list[Record]:
    """All that a subscriber reads there."""
    with Subscriber("t", directory=str(directory), follow=False) as subscriber:
        return list(subscriber.present())


def restore(world: World, to: Path, *arguments: str) -> Any:
    return as_json("restore", "t", "--to", str(to), *arguments)


@pytest.mark.usefixtures("starts_nodes")
def test_a_target_that_is_not_there_holds_everything_back(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with copying(tmp_path, str(target)) as world:
        everything = write(world)
        config = ("--config", world.cluster.client_file)
        wait_for(lambda: "is it mounted" in state(world).problem, "the plan says why it waits")
        assert "is not a directory" in samelog("status", *config).stdout
        assert "is it mounted" in samelog("archive", "plan", *config).stderr
        world.leader().kill()
        wait_for(lambda: "is it mounted" in state(world).problem, "the next leader says so too")
        assert truncated(world) == set()
        target.mkdir()
        for node in world.cluster.nodes:
            if node.pid is None:
                node.start()
                world.wait_live(node)
        wait_for(lambda: is_archived(world), "archived everywhere")
        gone = truncated(world)
        assert copied(str(target)) == {base: {SEGMENTS, PARQUET} for base in gone}
        for file in log_history(world.cluster.client_file):
            if file.first_offset in gone:
                assert (file.copy_url, file.copy_formats) == (str(target), "segments,parquet")
                assert 0 < file.copied_ms < file.archived_ms + CLOCKS_DIFFER_MS
        check_restored(world, everything, SEGMENTS)
    check_damage(world, target)


def check_restored(world: World, everything: list[Record], kind: str) -> None:
    """Restore all that is archived, and compare it record by record."""
    where = ("--config", world.cluster.client_file)
    back = world.directory / f"back-{kind}"
    restored = restore(world, back, "--format", kind, *where)
    found = records_in(back)
    assert (restored["first_offset"], restored["next_offset"]) == (0, len(found))
    assert len(found) > COUNT // 2
    assert facts(found) == facts(everything[: len(found)])
    assert check_all(find_copies([str(back)]), lambda amount: None) == []


def check_damage(world: World, target: Path) -> None:
    """Without the cluster; what is not what was copied is not brought back."""
    back, where = world.directory / "range", ("--from", str(target))
    restored = restore(world, back, *where, "--from-offset", "3", "--to-offset", "6")
    found = records_in(back)
    assert restored["first_offset"] == found[0].offset == 3
    assert found[-1].offset >= 5
    copy = next(target.rglob("segments/0/*2.log"))
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    bad = samelog("restore", "t", *where, "--to", str(world.directory / "bad"))
    assert bad.returncode == 1
    assert copy.name in bad.stderr
    assert not (world.directory / "bad" / "t-0").exists()


@pytest.mark.usefixtures("starts_nodes")
def test_an_object_store_that_fails_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is cut, then held; the leader dies meanwhile. Nothing goes that is not copied."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with object_store() as line:
        url = url_of(line, "bucket")
        line.allowed = 5 * len(RECORD)
        with copying(tmp_path, url) as world:
            everything = write(world)
            wait_for(lambda: bool(state(world).problem), "the plan says why it waits")
            line.hold()
            wait_for(lambda: bool(state(world).file), "it tries again")
            leader = world.leader()
            status = world.status(leader)
            assert status is not None
            assert any("copies before archiving" in node.detail for node in status.nodes)
            leader.kill()
            gone = truncated(world)
            assert 0 < len(gone) < COUNT // 2
            line.heal()
            assert gone <= set(copied(url))
            for node in world.cluster.nodes:
                if node.pid is None:
                    node.start()
            wait_for(lambda: is_archived(world), "archived everywhere")
            assert truncated(world) <= set(copied(url))
            check_restored(world, everything, PARQUET)
