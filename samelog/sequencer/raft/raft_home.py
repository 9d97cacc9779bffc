"""Where a node's Raft files are: in its data directory, or in one of their own (`[node] raft_dir`),
which may be on another disk.

Then each of both directories has a `raft.json`, with the id of the data directory (`node.id`) and
where the other one was. The data directory's tells that Raft's files are elsewhere, and is the last
to be written, or removed, when they are moved: what it says counts.

One of the two may be put back without the other, from a backup. So the directory of Raft's files
has the life that wrote there last, `raft.life`, and the data directory knows the birth of the other
one's `raft.json`. The member list of the others tells an older data directory.

Invariant: Raft's files are used only beside the data directory that they belong to. A node that
does not find them where it is told to look does not begin: with empty ones it would vote as if it
had promised nothing (rule raft.42). With older ones it is a suspect (rule raft.44).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

import msgspec

from samelog.config.tables.node import NodeConfig
from samelog.format.checked_json import encode_checked
from samelog.format.errors import DirectoryInUse
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.birth import Birth
from samelog.store.disk.directories import make_durable_directory
from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.json_files import checked_text
from samelog.store.disk.quarantine import copy_bytes

FORMAT_VERSION = 1
LIMIT_BYTES = 1 << 16
FOLDER = "raft"
MARK = "raft.json"
MARK_NAMES = (MARK, f"{MARK}.tmp")
LIFE = "raft.life"
_PASSED_OVER = (*MARK_NAMES, LIFE, f"{LIFE}.tmp", "raft.lock", "raft.new", "lost+found")
_REMEDY = "samelog recover move-raft moves them"
_Value = TypeVar("_Value")


class RaftMark(msgspec.Struct, frozen=True):
    """The contents of raft.json. `directory_id`: of the data directory; `other`: the directory that
    this one belongs to, as it was called; `since`: when the files were moved (ms; 0: never), which
    tells them from those of an interrupted move.
    """

    format_version: int
    cluster: str
    node: str
    directory_id: str
    other: str
    since: int
    made: Birth | None = None
    """In the data directory: the birth of the other one's file."""


class RaftLife(msgspec.Struct, frozen=True):
    """The contents of raft.life: the node's life that began last, and the one before it, which is
    still the newest in the data directory if the new one has not begun.
    """

    life: str
    before: str


def home_of(config: NodeConfig) -> str:
    """The directory that has `raft`, and what is set aside of it."""
    return config.place.raft_dir or config.data


def raft_path(config: NodeConfig) -> str:
    """The directory of Raft's files."""
    return os.path.join(home_of(config), FOLDER)


def make_home(fs: FileSystem, config: NodeConfig, directory_id: str) -> File | None:
    """Of a data directory that is new: make the one that Raft's files will be in, if that is
    another; its lock. Raises RaftStoreError if it holds anything.
    """
    home = config.place.raft_dir
    if not home:
        return None
    make_durable_directory(fs, home)
    lock = _lock(fs, home)
    try:
        _check_is_free(fs, home, f"and {config.data} is new, so it is another node's")
        mark = RaftMark(FORMAT_VERSION, config.cluster, config.name, directory_id, config.data, 0)
        _mark_both(fs, config, mark)
        fs.make_directory(os.path.join(home, FOLDER))
    except BaseException:
        lock.close()
        raise
    return lock


def take_home(fs: FileSystem, config: NodeConfig, directory_id: str) -> File | None:
    """Of a data directory that is not new: the lock of the one that Raft's files are in, if that is
    another. Raises as `check_home`.
    """
    check_home(fs, config, directory_id)
    return _lock(fs, config.place.raft_dir) if config.place.raft_dir else None


def check_home(fs: FileSystem, config: NodeConfig, directory_id: str) -> None:
    """Raises RaftStoreError unless Raft's files of this data directory are where they are looked
    for.
    """
    told, home = _read(fs, config.data), config.place.raft_dir
    if told is not None and told.directory_id != directory_id:
        path = os.path.join(config.data, MARK)
        raise RaftStoreError(f"{path} is of another data directory: bring back the right one")
    if told is None:
        if home:
            where = os.path.join(config.data, FOLDER)
            text = f"node.raft_dir is {home}, and Raft's files are in {where} as before"
            raise RaftStoreError(f"{text}: {_REMEDY}")
        return
    if not home:
        text = f"Raft's files of {config.data} are in {told.other}, and node.raft_dir is not set"
        raise RaftStoreError(f"{text}: set it, or move them back: samelog recover move-raft")
    _check_mark(fs, home, config, told)


def _check_mark(fs: FileSystem, home: str, config: NodeConfig, told: RaftMark) -> None:
    found = _read(fs, home) if fs.exists(home) else None
    if found is None:
        text = f"{home} has no Raft files, and {config.data} is not new"
        raise RaftStoreError(f"{text}: mount its disk, or set node.raft_dir (it was {told.other})")
    if found != msgspec.structs.replace(told, other=found.other, made=None):
        whose = f"node {found.node!r} of cluster {found.cluster!r}, as of {found.other}"
        text = f"{home} belongs to {whose}; not to {config.data}"
        raise RaftStoreError(f"{text}: set node.raft_dir to the right one (it was {told.other})")
    if not fs.exists(os.path.join(home, FOLDER)):
        raise RaftStoreError(f"{home} has no directory raft any more: bring it back")


def why_doubted(fs: FileSystem, config: NodeConfig, incarnation: str) -> str:
    """Why Raft's files may be older than the data directory, whose newest life is `incarnation`, as
    after one of the two was put back; empty: they are not.
    """
    home, told = config.place.raft_dir, _read(fs, config.data)
    if not home or told is None:
        return ""
    if fs.birth(os.path.join(home, MARK)) != told.made:
        return "its raft_dir is a copy of the one that it ran on"
    found = _decoded(fs, os.path.join(home, LIFE), RaftLife)
    is_of_now = found is not None and incarnation in (found.life, found.before)
    return "" if is_of_now else "its raft_dir is older than its data directory"


def begin_life(fs: FileSystem, config: NodeConfig, life: str, before: str) -> None:
    """Another life is about to begin; the data directory names it next."""
    home, told = config.place.raft_dir, _read(fs, config.data)
    if home and told is not None:
        fs.write_atomically(os.path.join(home, LIFE), encode_checked(RaftLife(life, before)))
        made = fs.birth(os.path.join(home, MARK))
        if made != told.made:
            _mark(fs, config.data, msgspec.structs.replace(told, made=made))


def is_there(fs: FileSystem, config: NodeConfig) -> bool:
    """Whether the directory of a node that runs is where it was. Raises DiskFault."""
    return not config.place.raft_dir or fs.exists(os.path.join(config.place.raft_dir, MARK))


def move(
    fs: FileSystem, config: NodeConfig, directory_id: str, incarnation: str, wall_ms: int
) -> tuple[str, str]:
    """Move the Raft files of a stopped node to where its configuration says: where they are now,
    and as what the old ones are kept. Raises RaftStoreError. `incarnation`: of its newest life.

    What the data directory's mark says counts until all is copied, so this may be begun again
    (rule raft.43).
    """
    told, wanted = _read(fs, config.data), home_of(config)
    here = config.data if told is None else told.other
    if here == wanted:
        raise RaftStoreError(f"Raft's files are in {wanted} already")
    if told is not None:
        _check_mark(fs, here, config, told)
        _check_is_current(fs, config, here, incarnation)
    mark = RaftMark(FORMAT_VERSION, config.cluster, config.name, directory_id, config.data, wall_ms)
    _make_way(fs, config, mark)
    copied = os.path.join(wanted, "raft.new")
    _copy_directory(fs, os.path.join(here, FOLDER), copied)
    fs.rename(copied, os.path.join(wanted, FOLDER))
    fs.sync_directory(wanted)
    if wanted == config.data:
        fs.unlink(os.path.join(config.data, MARK))
        fs.sync_directory(config.data)
    else:
        life = RaftLife(incarnation, "")
        fs.write_atomically(os.path.join(wanted, LIFE), encode_checked(life))
        _mark_both(fs, config, mark)
    return wanted, _set_aside(fs, config, here, wall_ms)


def _check_is_current(fs: FileSystem, config: NodeConfig, here: str, incarnation: str) -> None:
    place = replace(config.place, raft_dir=here)
    doubt = why_doubted(fs, replace(config, place=place), incarnation)
    if doubt:
        raise RaftStoreError(f"{doubt}: bring back the newer one, or start the node with it first")


def _make_way(fs: FileSystem, config: NodeConfig, mark: RaftMark) -> None:
    """An interrupted move may have left what does not count; nothing else may be there."""
    wanted = home_of(config)
    fs.make_directory(wanted)
    if wanted != config.data:
        left = _read(fs, wanted)
        if left is None or left.directory_id != mark.directory_id:
            _check_is_free(fs, wanted, "which is not of this node")
        _mark(fs, wanted, mark)
    if fs.exists(os.path.join(wanted, "raft.new")):
        fs.remove_tree(os.path.join(wanted, "raft.new"))
    if fs.exists(os.path.join(wanted, FOLDER)):
        left_over = os.path.join(wanted, f"set-aside.raft.{mark.since}.left")
        fs.rename(os.path.join(wanted, FOLDER), left_over)


def _copy_directory(fs: FileSystem, source: str, target: str) -> None:
    """Durably; groups' directories are named by numbers."""
    fs.make_directory(target)
    for name in fs.list_directory(source):
        path, to = os.path.join(source, name), os.path.join(target, name)
        if name.isdecimal():
            _copy_directory(fs, path, to)
        else:
            _copy_file(fs, path, to)
    fs.sync_directory(target)


def _copy_file(fs: FileSystem, path: str, to: str) -> None:
    source, target = fs.open(path), fs.open(to, create=True)
    try:
        copy_bytes(source, target, 0, source.size())
        target.datasync()
    finally:
        source.close()
        target.close()


def _set_aside(fs: FileSystem, config: NodeConfig, home: str, wall_ms: int) -> str:
    aside = os.path.join(home, f"set-aside.raft.{wall_ms}")
    fs.rename(os.path.join(home, FOLDER), aside)
    if home != config.data:
        fs.unlink(os.path.join(home, MARK))
    fs.sync_directory(home)
    return aside


# --- marks ----------------------------------------------------------------------------------------


def _check_is_free(fs: FileSystem, home: str, why: str) -> None:
    held = [name for name in fs.list_directory(home) if name not in _PASSED_OVER]
    if FOLDER in held and not fs.list_directory(os.path.join(home, FOLDER)):
        held.remove(FOLDER)
    if held:
        raise RaftStoreError(f"{home} holds {held[0]!r}, {why}: node.raft_dir is to be empty")


def _mark_both(fs: FileSystem, config: NodeConfig, mark: RaftMark) -> None:
    """The data directory's counts, so it comes last."""
    home = home_of(config)
    _mark(fs, home, mark)
    made = fs.birth(os.path.join(home, MARK))
    _mark(fs, config.data, msgspec.structs.replace(mark, other=home, made=made))


def _mark(fs: FileSystem, directory: str, mark: RaftMark) -> None:
    fs.write_atomically(os.path.join(directory, MARK), encode_checked(mark))


def _read(fs: FileSystem, directory: str) -> RaftMark | None:
    path = os.path.join(directory, MARK)
    mark = _decoded(fs, path, RaftMark)
    if mark is not None and mark.format_version != FORMAT_VERSION:
        text = f"{path}: format version {mark.format_version}"
        raise RaftStoreError(f"{text}; this program reads {FORMAT_VERSION}")
    return mark


def _decoded(fs: FileSystem, path: str, kind: type[_Value]) -> _Value | None:
    if not fs.exists(path):
        return None
    try:
        data = fs.read_file(path, LIMIT_BYTES)
        return msgspec.json.decode(checked_text(path, data), type=kind)
    except ValueError as error:
        raise RaftStoreError(f"{path} is unreadable ({error}): restore it") from error


def _lock(fs: FileSystem, home: str) -> File:
    try:
        return fs.lock(os.path.join(home, "raft.lock"))
    except DirectoryInUse as error:
        raise RaftStoreError(f"another running node uses {home}: {error}") from error
