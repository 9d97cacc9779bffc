"""What is left in a data directory of groups that have no replica here any more: after a member was
away while its replica was ended, or died at it.

Invariant: files go only when the table is known to be as new as that of group 0 was when this life
began, and names another place for what is in them, or nothing was; others are kept, and shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from samelog.placement.values import Placement
from samelog.store.disk.files import FileSystem

FOLDER = "groups"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Groups of which there are files, and no replica is to be here."""

    gone: tuple[int, ...] = ()
    """They have ended: a group ends only when it has no partitions."""
    unknown: tuple[int, ...] = ()
    """No table has ever named them."""


def groups_on_disk(fs: FileSystem, data: str) -> set[int]:
    """Groups that have a directory."""
    folder = os.path.join(data, FOLDER)
    names = fs.list_directory(folder) if fs.exists(folder) else ()
    return {int(name) for name in names if name.isdecimal()}


def leftovers(table: Placement, there: Iterable[int]) -> Leftovers:
    """What is left, by a table that is as new as can be."""
    others = sorted(set(there) - table.groups.keys())
    gone = tuple(
        each for each in others if table.skipped.has_given("group", each, table.next_group)
    )
    return Leftovers(gone, tuple(each for each in others if each not in gone))


def set_aside(fs: FileSystem, path: str, group: int, replica: int) -> None:
    """Move what a replica had of a life of its group that is over out of the way, to be kept."""
    if fs.exists(path):
        data = os.path.dirname(os.path.dirname(path))
        fs.rename(path, os.path.join(data, f"set-aside.group.{group}.{replica}"))
        fs.sync_directory(data)
