"""Failing, short and slow disks, crash points and wrong clocks, by a library preloaded into nodes.

Invariant: the order of `_FIELDS` is that of the enumeration in shim.c.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path

from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode

_FIELDS = (
    "operations",
    "error",
    "skip",
    "times",
    "short",
    "sync_delay_us",
    "clock_offset_ns",
    "crash_in",
    "crash_when",
    "calls",
    "faults",
)
FOR_EVER = -1
_SOURCE = Path(__file__).with_name("shim.c")
_COMPILE = ("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o")


class Operation(IntFlag):
    """Kinds of calls that can fail."""

    WRITE = 1
    SYNC = 2
    NAMES = 4


class Crash(IntEnum):
    """Where in a call the process dies. HALFWAY: half of a write is done."""

    BEFORE = 0
    AFTER = 1
    HALFWAY = 2


@cache
def need_compiler() -> str | None:
    """Why there can be no shim; None if there can."""
    return None if shutil.which("gcc") else "needs gcc and libc6-dev, to build the preloaded shim"


class Shim:
    """The control file of one node's shim."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8 * len(_FIELDS)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def get(self, field: str) -> int:
        """A field's value."""
        return int(struct.unpack_from("=q", self._memory, 8 * _FIELDS.index(field))[0])

    def set(self, field: str, value: int) -> None:
        """Change a field; it counts at once."""
        struct.pack_into("=q", self._memory, 8 * _FIELDS.index(field), value)

    def fail(self, operations: Operation, *, error: int = errno.EIO, times: int = 1) -> None:
        """Let the next calls of these kinds fail."""
        self.set("error", error)
        self.set("times", times)
        self.set("operations", operations)

    def shorten(self) -> None:
        """Let every write of more than one byte write only half."""
        self.set("short", 1)
        self.fail(Operation.WRITE, times=FOR_EVER)

    def crash(self, calls: int, when: Crash) -> None:
        """Kill the process in so many calls from now, or from its next start."""
        self.set("crash_when", when)
        self.set("crash_in", calls)

    def clear(self) -> None:
        """No more faults."""
        for field in ("operations", "short", "sync_delay_us", "clock_offset_ns", "crash_in"):
            self.set(field, 0)


class Shims(dict[str, Shim]):
    """The shims of a field, by node."""

    def clear_all(self) -> None:
        """No more faults anywhere."""
        for shim in self.values():
            shim.clear()


def build(directory: Path) -> Path:
    """Compile the library."""
    library = directory / "shim.so"
    subprocess.run([*_COMPILE, str(library), str(_SOURCE), "-ldl"], check=True)
    return library


def preload(field: Field) -> None:
    """Build the shim, and give every node of a field one."""
    library = build(field.directory)
    shims = Shims({node.name: _attach(field, node, library) for node in field.nodes})
    field.on_heal(shims.clear_all)
    field.equip(shims)


def environment(library: Path, shim: Shim, prefix: str) -> dict[str, str]:
    """Return the variables with which a process obeys a shim, in files below `prefix`."""
    return {
        "LD_PRELOAD": str(library),
        "CHAOS_CONTROL": str(shim.path),
        "CHAOS_PREFIX": prefix,
    }


def _attach(field: Field, node: ChaosNode, library: Path) -> Shim:
    shim = Shim(field.directory / f"shim-{node.name}")
    node.environment |= environment(library, shim, node.data)
    return shim
