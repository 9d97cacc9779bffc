"""Planted bugs in how entries wait for the bytes that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from samelog.consensus import Entry, Raft, follower
from samelog.consensus.core import Core
from samelog.consensus.log import Backing, RaftLog, with_commit
from samelog.consensus.messages import Append, AppendReply
from tests.sim.disk import Disk
from tests.sim.shipping import Stored


@contextmanager
def take_without_bytes() -> Iterator[None]:
    """A follower takes and acknowledges entries whose bytes it lacks."""
    with patch.object(Backing, "count", lambda self, log, entries, commit: len(entries)):
        yield


@contextmanager
def sync_the_log_alone() -> Iterator[None]:
    """Entries are acknowledged when they are durable, and the bytes that they name are not yet."""
    with patch.object(Stored, "synced", lambda self, numbers: None):
        yield


@contextmanager
def keep_what_has_no_bytes() -> Iterator[None]:
    """A restarted node keeps entries whose bytes a loss of power took, and answers for them."""
    with patch.object(Raft, "cut_unbacked", lambda self, is_kept: None):
        yield


@contextmanager
def acknowledge_what_is_held_back() -> Iterator[None]:
    """A follower acknowledges entries that wait for their bytes."""
    original = follower._take

    def take(core: Core, sender: int, message: Append) -> Append | None:
        rest = original(core, sender, message)
        if rest is not None:
            match = rest.prev_index + len(rest.entries)
            reply = AppendReply(core.term, message.stream, match, core.may_vote)
            core.send_after_save(sender, reply)
        return rest

    with patch.object(follower, "_take", take):
        yield


@contextmanager
def wait_for_committed_bytes() -> Iterator[None]:
    """A follower waits for bytes of entries, too, that are committed: nobody may have them."""
    original = Backing.count

    def count(self: Backing, log: RaftLog, entries: Sequence[Entry], commit: int) -> int:
        return original(self, log, entries, 0)

    with patch.object(Backing, "count", count):
        yield


@contextmanager
def take_bare_what_is_sent() -> Iterator[None]:
    """A word of the leader that some entry is committed lets go all that is held back."""

    def let_go(core: Core, commit: int) -> None:
        held = core.backing.held
        if held is not None:
            core.backing.held = with_commit(held, held.prev_index + len(held.entries))
            follower.bytes_came(core)

    with patch.object(follower, "_let_go", let_go):
        yield


@contextmanager
def release_before_the_commit_is_kept() -> Iterator[None]:
    """A node removes bytes before its disk says that their entry is committed."""
    with patch.object(Disk, "keep_commit", lambda self, commit: None):
        yield


MUTANTS = (
    take_without_bytes,
    sync_the_log_alone,
    keep_what_has_no_bytes,
    acknowledge_what_is_held_back,
    wait_for_committed_bytes,
    take_bare_what_is_sent,
    release_before_the_commit_is_kept,
)
