"""Names of the numbered files of a member's Raft directory, and the message about damaged ones.

Invariant: the numbers in names are decimal and padded, so that names sort as numbers do.
"""

from __future__ import annotations

import os

from samelog.store.disk.files import FileSystem


def numbers_of(fs: FileSystem, directory: str, prefix: str) -> list[int]:
    """The numbers of the files of a kind, in order."""
    names = fs.list_directory(directory)
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isdigit())


def path_of(directory: str, prefix: str, number: int) -> str:
    """Where a numbered file is."""
    return os.path.join(directory, f"{prefix}{number:020d}")


def damaged(path: str, reason: str) -> str:
    """For an operator."""
    return (
        f"{path} is damaged: {reason}. Nothing was changed. Remedy: keep a copy of the data "
        "directory, then start this node with an empty one, to be filled from its peers"
    )
