"""Disks of a node's own: small ones that fill up, and ext4 on a loop device, which can lose its
power or turn read-only.

Power loss is EXT4_IOC_SHUTDOWN without log flush: from then on nothing reaches the device, and what
was not synced is gone when the file system is mounted again. The device's file lies in the page
cache of this machine, which goes on running, as a disk goes on spinning.

Invariant: whatever was mounted is unmounted when the field is left.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.chaos.field import Field, is_root
from tests.chaos.nodes import ChaosNode

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
FILL_BYTES = 1 << 20


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _try(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@cache
def need_mount() -> str | None:
    """Why nothing can be mounted; None if it can."""
    return None if is_root() else "needs root, to mount a small file system"


@cache
def need_loop() -> str | None:
    """Why there can be no loop-mounted ext4; None if there can."""
    if not is_root():
        return "needs root, to mount ext4 on a loop device"
    if not _try(["mkfs.ext4", "-V"]):
        return "needs mkfs.ext4, Debian's e2fsprogs"
    if not _try(["losetup", "--find"]):
        return "needs a free loop device"
    return None


class Disk:
    """A file system of its own, mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def mount(self) -> None:
        """Make it usable."""
        raise NotImplementedError

    def unmount(self) -> None:
        """Let go of it, at once."""
        while os.path.ismount(self.path):
            _run(["umount", "-l", str(self.path)])

    def fill(self, leave_bytes: int = 0) -> None:
        """Write a file that leaves so much room."""
        with (self.path / "filler").open("ab") as file:
            while (free := self._free()) > leave_bytes:
                try:
                    os.posix_fallocate(
                        file.fileno(), file.tell(), min(FILL_BYTES, max(4096, free - leave_bytes))
                    )
                    file.seek(0, os.SEEK_END)
                except OSError:
                    return

    def _free(self) -> int:
        known = os.statvfs(self.path)
        return known.f_bavail * known.f_frsize

    def free(self) -> None:
        """Remove the file."""
        (self.path / "filler").unlink(missing_ok=True)


class MemoryDisk(Disk):
    """A small tmpfs."""

    def __init__(self, path: Path, mib: int) -> None:
        super().__init__(path)
        self._mib = mib

    def mount(self) -> None:
        """Make it usable."""
        _run(["mount", "-t", "tmpfs", "-o", f"size={self._mib}m", "tmpfs", str(self.path)])


class LoopDisk(Disk):
    """ext4 in a file."""

    def __init__(self, path: Path, mib: int) -> None:
        super().__init__(path)
        self._image = path.with_suffix(".ext4")
        with self._image.open("wb") as file:
            file.truncate(mib << 20)
        _run(["mkfs.ext4", "-q", "-F", str(self._image)])

    def mount(self) -> None:
        """Make it usable; ext4 replays its journal."""
        options = "loop,errors=remount-ro"
        _run(["mount", "-t", "ext4", "-o", options, str(self._image), str(self.path)])

    def lose_power(self) -> None:
        """From now on nothing reaches the device."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def turn_read_only(self) -> None:
        """Make ext4 find an error, which remounts it read-only under whoever writes."""
        source = subprocess.run(
            ["findmnt", "-n", "-o", "SOURCE", str(self.path)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        trigger = Path("/sys/fs/ext4", Path(source).name, "trigger_fs_error")
        trigger.write_text("1", encoding="ascii")

    def power_on(self) -> None:
        """Mount it as after a restart of the host. Nothing may use it any more."""
        _run(["umount", str(self.path)])
        self.mount()


class Disks(dict[str, Disk]):
    """The disks of a field, by node or session."""

    def loop(self, name: str) -> LoopDisk:
        """One that can lose its power."""
        disk = self[name]
        if not isinstance(disk, LoopDisk):
            raise TypeError(name)
        return disk


def give_disk(field: Field, disks: Disks, node: ChaosNode, disk: Disk) -> None:
    """Mount a disk, and put a node's data there."""
    field.on_leave(disk.unmount)
    disk.mount()
    field.move_data(node, disk.path)
    disks[node.name] = disk


def small_disks(field: Field, mib: int = 128) -> None:
    """A small tmpfs for every node."""
    disks = Disks()
    for node in field.nodes:
        give_disk(field, disks, node, MemoryDisk(field.directory / f"disk-{node.name}", mib))
    field.equip(disks)


def loop_disks(field: Field, mib: int = 256) -> None:
    """An ext4 of its own for every node."""
    disks = Disks()
    for node in field.nodes:
        give_disk(field, disks, node, LoopDisk(field.directory / f"disk-{node.name}", mib))
    field.equip(disks)
