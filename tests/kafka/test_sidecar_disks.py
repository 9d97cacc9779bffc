"""Sidecars on small disks of their own, which fill up, go away and come back under them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from samelog import Publisher
from samelog.cli.local_cluster import free_ports
from samelog.config.values import Address
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.http import asking
from tests.kafka.batches import batch
from tests.kafka.test_sidecars import produced, running
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

DISK_MIB = 8
STORAGE_ERROR = 56


def run(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def disk(path: Path) -> Iterator[Path]:
    """A small tmpfs."""
    path.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(path)]
    if os.geteuid() != 0 or not run(*mounted):
        pytest.skip("mounting a small file system needs root")
    try:
        yield path
    finally:
        while os.path.ismount(path):
            subprocess.run(["umount", "-l", str(path)], check=True)


def cover(path: Path) -> None:
    """What a program finds when the disk is not mounted any more: an empty directory."""
    assert run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path))


def fill(path: Path) -> Path:
    filler = path / "filler"
    assert not run("dd", "if=/dev/zero", f"of={filler}", "bs=64k"), "it ends where the disk does"
    return filler


class Asked:
    """A sidecar's HTTP."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", *free_ports(1))
        self.options = ["--http", str(self.address)]

    def why_not(self) -> str:
        """Why it is not ready; empty if it is."""
        answer = asking.ask(self.address, "GET", "/readyz")
        return "" if answer.status == 200 else str(answer.body["detail"])

    def wait_ready(self) -> None:
        wait_for(lambda: self.why_not() == "", "it is ready")

    def wait_not_ready(self, why: str) -> None:
        wait_for(lambda: why in self.why_not(), f"it says {why!r}")

    def copied(self) -> int:
        copies = asking.get(self.address, "/status")["copies"]
        return int(copies[0]["next_offset"]) if copies else 0


def local(directory: Path, session: str) -> Publisher:
    """A program beside the sidecar."""
    return Publisher("disks", session=session, directory=directory, budget_bytes=1 << 20)


def test_a_publisher_sidecar_whose_disk_fills_goes_away_and_comes_back(
    world: World, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk") as mounted:
        with local(mounted, "early") as program:
            for _ in range(15):
                program.append(bytes(60_000))
        fill(mounted)  # only shipping can make room
        asked = Asked()
        arguments = ["--config", world.cluster.client_file, "--dir", str(mounted), *asked.options]
        arguments += ["--kafka-session", "listener"]
        with running(["publisher", *arguments], tmp_path / "log") as sidecar:
            world.wait_offset(15, "disks")
            wait_for(lambda: not (mounted / "early" / "disks-0" / "log.0.0").exists(), "room")
            (mounted / "filler").unlink()
            asked.wait_ready()
            with Wire(sidecar.address) as wire:
                assert produced(wire, "disks", batch(b"one")).error_code == 0
                cover(mounted)
                asked.wait_not_ready("another directory is in its place")
                assert produced(wire, "disks", batch(b"two")).error_code == STORAGE_ERROR
                assert not list(mounted.iterdir())
                subprocess.run(["umount", str(mounted)], check=True)
                asked.wait_ready()
                assert produced(wire, "disks", batch(b"two")).error_code == 0
            world.wait_offset(17, "disks")
        values = [record.value for record in world.read(17, topic="disks", name="disks")]
    assert [value for value in values if value and len(value) < 9] == [b"one", b"two"]


def test_a_subscriber_sidecar_whose_disk_fills_goes_away_and_comes_back(
    world: World, tmp_path: Path
) -> None:
    def publish(count: int) -> None:
        with world.publisher("big", "big") as publisher:
            for _ in range(count):
                publisher.append(bytes(60_000))
            publisher.wait_merged(PATIENCE_S)

    publish(10)
    with disk(tmp_path / "disk") as mounted:
        asked = Asked()
        arguments = ["--config", world.cluster.client_file, "--dir", str(mounted), *asked.options]
        with running(["subscriber", *arguments, "--topic", "big"], tmp_path / "log"):
            wait_for(lambda: asked.copied() == 10, "it is copied")
            filler = fill(mounted)
            publish(30)
            asked.wait_not_ready("its disk is full")
            filler.unlink()
            wait_for(lambda: asked.copied() == 40, "it goes on")
            asked.wait_ready()
            cover(mounted)
            asked.wait_not_ready("another directory is in its place")
            publish(2)
            assert not list(mounted.iterdir())
            subprocess.run(["umount", str(mounted)], check=True)
            wait_for(lambda: asked.copied() == 42, "it goes on")
        copy = (mounted / "big-0" / f"{0:020d}.log").read_bytes()
        assert copy == world.merged_bytes(world.cluster.nodes[0], "big")


@pytest.mark.parametrize("kind", [["publisher"], ["subscriber", "--topic", "t"]])
def test_what_cannot_be_used_from_the_start_ends_with_one_message(
    world: World, tmp_path: Path, kind: list[str]
) -> None:
    (tmp_path / "file").touch()
    places = {str(tmp_path / "file" / "below"): "cannot be made: Not a directory"}
    with disk(tmp_path / "disk") as mounted:
        assert run("mount", "-o", "remount,ro", str(mounted))
        places[str(mounted)] = "cannot be written: Read-only file system"
        for place, said in places.items():
            options: list[Any] = ["--config", world.cluster.client_file, "--dir", place]
            ended = samelog("sidecar", *kind, *options)
            assert ended.returncode == 1
            assert ended.stderr.count("\n") == 1, ended.stderr
            assert f"the directory {place} {said} (give one, with --dir" in ended.stderr
