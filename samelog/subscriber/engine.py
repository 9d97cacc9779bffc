"""The part of a subscriber that knows partitions: finds them, starts them, reads them in turn.

It never waits; a synchronous or an asynchronous subscriber around it does, as `waiter` tells. One
thread at a time may use it.

Invariant: partitions take turns, a chunk each; a partition's records go out in order.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from samelog.format.directory_files import RowsFile
from samelog.format.file_names import parse_input_name
from samelog.format.transactions import Isolation
from samelog.replicator.client_errors import TopicDeleted
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.subscriber.committed_reader import CommittedReader
from samelog.subscriber.cursor import CHUNK_BYTES, Cursor
from samelog.subscriber.errors import LOCAL_COPY_KEPT, LogReset, OffsetNotHere
from samelog.subscriber.keeper import Keeper, NoKeeper
from samelog.subscriber.start import EARLIEST, LATEST, Known, StartFinder, WantedStart
from samelog.subscriber.tail_reader import TailReader
from samelog.subscriber.topics.chosen import ChosenTopics
from samelog.subscriber.waiter import Waiter

if TYPE_CHECKING:
    from samelog.config.tables.client import ClientConfig
    from samelog.subscriber.groups.sharing import Sharing

log = logging.getLogger(__name__)

Name = tuple[str, int]
"""(topic, partition)."""

RESCAN_S = 1.0
"""How often everything is looked at although nothing was noticed."""
START_RESCAN_S = 0.05
"""How often a start is looked for that is not known yet: each look may walk over a log's tail."""


@dataclass(slots=True)
class _Starting:
    """A partition whose start is not known yet; `stop` is settled when it is first looked at."""

    reader: TailReader
    wanted: WantedStart
    is_latest: bool
    stop: int | None = None


class NewTopics(Protocol):
    """What learns of topics that patterns mean."""

    def check(self) -> None:
        """Raise what keeps a topic from being read."""

    def leaves(self, topic: str, log_id: str) -> bool:
        """It was deleted: whether the subscriber goes on without it."""

    def follow(self, config: ClientConfig) -> None:
        """Ask these nodes from now on."""

    def close(self) -> None:
        """Learn of no more."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is read, and how far: `follow` is for ever, else to the end there is at the start."""

    topics: ChosenTopics
    partitions: frozenset[int] | None
    follow: bool
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    sharing: Sharing | None = None
    """What the member of a group has."""
    rows: Mapping[str, RowsFile] = field(default_factory=dict)
    """By topic, if what is there is what passed a filter at a node, not the log."""
    new_topics: NewTopics | None = None
    """What learns of topics, if there are patterns and a cluster."""

    def open(self, fs: FileSystem, path: str, topic: str) -> TailReader | None:
        """What reads a partition: whatever is wanted of it was decided where it was filtered.
        Raises as TailReader.open.
        """
        rows = self.rows.get(topic)
        is_plain = rows is not None or self.isolation is Isolation.READ_UNCOMMITTED
        return (TailReader if is_plain else CommittedReader).open(fs, path, rows)


class PositionKeeper(Protocol):
    """Where positions are kept: a file, or the cluster."""

    def put(self, topic: str, topic_id: str, partition: int, offset: int) -> None:
        """Note a position; `save` makes it last."""

    def save(self, *, durable: bool) -> None:
        """Keep what was noted; `durable` waits for it."""

    def close(self) -> None:
        """No more is noted."""


class Engine:
    """The partitions of one subscriber, below one directory."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        choice: Choice,
        *,
        finder: StartFinder,
        store: PositionKeeper | None,
        is_kept_here: bool,
    ) -> None:
        """`is_kept_here`: what keeps the copies, in this process, wakes the waiter."""
        self.waiter = Waiter(is_woken=is_kept_here)
        self.keeper: Keeper = NoKeeper()
        self.cursors: dict[Name, Cursor] = {}
        self._fs = fs
        self._directory = directory
        self.choice = choice
        self._finder = finder
        self._store = store
        self._starting: dict[Name, _Starting] = {}
        self._turn: list[Cursor] = []
        self._watched: dict[Name, str] = {}
        """The file that is watched of each partition whose directory is watched, too."""
        self._saved: dict[Name, int] = {}
        self._is_watched = False
        """Whether the directory that holds the partitions is."""
        self.next_rescan = 0.0
        """When everything is looked at again, in monotonic seconds."""
        self._has_looked = False

    @property
    def sharing(self) -> Sharing | None:
        """What the member of a group has; None: it is none."""
        return self.choice.sharing

    # --- finding partitions --------------------------------------------------------------------

    def find_partitions(self) -> None:
        """Take up partitions that are there and not known yet, and start those that can.

        Raises:
            OffsetOutOfRange: the wanted start is not there.
            UnsupportedFormat, CorruptLog, DiskFault
        """
        self.waiter.names_changed = False
        soon = False
        for name in self._new_names():
            path = os.path.join(self._directory, f"{name[0]}-{name[1]}")
            reader = self.choice.open(self._fs, path, name[0])
            if reader is None:
                soon = True  # its directory is being made
            elif not self.choice.topics.has_left(reader.topic_id):
                self._take_up(name, reader)
        self._has_looked = True
        for name in tuple(self._starting):
            try:
                self._start(name, self._starting[name])
            except LogReset as reset:
                self._begin_anew(reset)
                soon = True
        soon |= bool(self._starting) or self.waiter.is_blind
        self.next_rescan = time.monotonic() + (START_RESCAN_S if soon else RESCAN_S)

    def _take_up(self, name: Name, reader: TailReader) -> None:
        wanted = self._finder.wanted_of(name[0], reader.topic_id, name[1])
        if self._has_looked and self.keeper.is_local and wanted == LATEST:
            wanted = EARLIEST  # all of it came after the start
        self._starting[name] = _Starting(reader, wanted, wanted == LATEST)

    def _new_names(self) -> list[Name]:
        try:
            names = self._fs.list_directory(self._directory)
        except NoSuchFile:
            return []
        found = [parsed for name in names if (parsed := parse_input_name(name)) is not None]
        topics = self.choice.topics
        if topics.patterns and self.keeper.is_local:
            topics.add(topics.unknown(dict(found)))
        return [name for name in found if self._is_new(name)]

    def _is_new(self, name: Name) -> bool:
        topic, partition = name
        chosen = self.choice.partitions
        is_chosen = topic in self.choice.topics.names and (chosen is None or partition in chosen)
        is_known = name in self.cursors or name in self._starting
        if self.sharing is not None and not self.sharing.holds(name):
            return False
        return is_chosen and not is_known and self.keeper.kept(topic, partition, 0) is not None

    def _start(self, name: Name, starting: _Starting) -> None:
        """Turn a partition into a cursor, if its start is known by now."""
        reader = starting.reader
        if starting.wanted == EARLIEST and self.choice.follow:
            reader.seek_earliest()
        elif not self._seek_start(name, starting):
            return
        del self._starting[name]
        cursor = Cursor(reader, starting.stop)
        self.cursors[name] = cursor
        self._turn.append(cursor)
        self._saved[name] = cursor.position if self.sharing is None else -1

    def _seek_start(self, name: Name, starting: _Starting) -> bool:
        """Put the reader where it is to start; False: that is not known, or not here yet."""
        reader = starting.reader
        held = reader.bounds()
        kept = self.keeper.kept(*name, held[1])
        if kept is None:
            return False
        known = Known(*held, kept.end, kept.first_end, is_local=self.keeper.is_local)
        if not self.choice.follow and starting.stop is None:
            starting.stop = kept.first_end
            if starting.stop is None:
                return False
        starting.wanted = self._finder.settle(starting.wanted, kept)
        offset = self._finder.find(reader, starting.wanted, known)
        if offset is not None:
            reader.seek(min(offset, reader.stable_end()) if starting.is_latest else offset)
        return offset is not None

    @property
    def is_finished(self) -> bool:
        """Whether everything was handed out that was there at the start. Never when following."""
        if self.choice.follow or self._starting:
            return False
        return all(self._has_all(topic) for topic in self.choice.topics) and all(
            cursor.is_finished for cursor in self.cursors.values()
        )

    def _has_all(self, topic: str) -> bool:
        copied, chosen = self.keeper.partitions(topic), self.choice.partitions
        if copied is None:
            return True
        known = frozenset(partition for found, partition in self.cursors if found == topic)
        wanted = copied if chosen is None else copied & chosen
        return (bool(copied) or self.sharing is not None) and known == wanted

    @property
    def is_at_end(self) -> bool:
        """Whether everything there is was handed out. May be asked from any thread."""
        return self.is_complete and all(cursor.is_at_end for cursor in tuple(self.cursors.values()))

    @property
    def is_complete(self) -> bool:
        """Whether all partitions are there, with what the cluster had when it was last heard of.
        May be asked from any thread.
        """
        return (
            not self._starting
            and all(self._has_all(topic) for topic in self.choice.topics)
            and self.keeper.is_caught_up()
        )

    # --- reading -------------------------------------------------------------------------------

    def next_filled(self, limit_bytes: int) -> Cursor | None:
        """A partition with something to hand out; the one that had its turn goes last.

        Raises:
            OffsetOutOfRange: where the application is was archived, and there is no other rule.
            CorruptLog, DiskFault
        """
        ends = self.keeper.ends
        for cursor in tuple(self._turn):
            reader = cursor.reader
            end = ends.get((reader.topic, reader.partition))
            if end is not None and reader.next_offset >= end and cursor.chunk is None:
                continue  # nothing was appended
            try:
                is_filled = cursor.fill(limit_bytes)
            except (OffsetNotHere, LogReset) as error:
                is_filled = self._fill_elsewhere(cursor, error, limit_bytes)
            if is_filled:
                if len(self._turn) > 1:
                    self._turn.remove(cursor)
                    self._turn.append(cursor)
                return cursor
        return None

    def filled(self, limit_bytes: int) -> Iterator[Cursor]:
        """All partitions with records to hand out. Raises as `next_filled`."""
        for cursor in tuple(self._turn):
            while self._fill(cursor, limit_bytes):
                if cursor.upcoming():
                    yield cursor
                    break
                cursor.finish(cursor.chunk)  # nothing of it is for the application

    def _fill(self, cursor: Cursor, limit_bytes: int) -> bool:
        try:
            return cursor.fill(limit_bytes)
        except (OffsetNotHere, LogReset) as error:
            return self._fill_elsewhere(cursor, error, limit_bytes)

    def _fill_elsewhere(
        self, cursor: Cursor, error: OffsetNotHere | LogReset, limit_bytes: int
    ) -> bool:
        """What was asked for is not there any more: go on where the rules say."""
        if isinstance(error, LogReset):
            self._begin_anew(error)
            return False
        self._reset(cursor, error)
        return cursor.fill(limit_bytes)

    def keep_turn(self, cursor: Cursor) -> None:
        """It was filled, and nothing was taken: it is the next one again."""
        self._turn.remove(cursor)
        self._turn.insert(0, cursor)

    def _reset(self, cursor: Cursor, error: OffsetNotHere) -> None:
        known = Known(error.earliest, error.end, error.end, error.end)
        cursor.jump(self._finder.reset(cursor.reader, error.offset, known))

    # --- waiting -------------------------------------------------------------------------------

    def watch(self) -> bool:
        """Watch what is read, with a waiter that `watches`; whether more is watched than before:
        then read again first.
        """
        added = not self._is_watched and self.waiter.watch_directory(self._directory)
        self._is_watched |= added
        for name, cursor in self.cursors.items():
            if self._watched.get(name) != cursor.reader.growing_path:
                added |= self._watch_partition(name, cursor.reader)
        return added

    def _watch_partition(self, name: Name, reader: TailReader) -> bool:
        """Watch the partition's directory, and the file that is read now instead of the one before;
        again at the next wait if one of them is not there yet.
        """
        before = self._watched.pop(name, None)
        if before is not None:
            self.waiter.forget(before)
        added = self.waiter.watch_directory(reader.path)
        added |= self.waiter.watch_file(reader.growing_path)
        if self.waiter.is_watched(reader.path) and self.waiter.is_watched(reader.growing_path):
            self._watched[name] = reader.growing_path
        return added

    def rescan_soon(self) -> None:
        """There is more than was seen: look when it is read next. May be called from any thread."""
        self.next_rescan = 0.0

    def rescan_if_due(self) -> bool:
        """Look for partitions, and at what may have been missed, if it is time; whether it was.

        Raises as `look`, and what keeps a copy from growing for good.
        """
        if not self.waiter.names_changed and time.monotonic() < self.next_rescan:
            return False
        self._check()
        self.find_partitions()
        for cursor in tuple(self.cursors.values()):
            if cursor.chunk is None:
                self._recheck(cursor)
        if self.keeper.is_local and self.choice.follow:
            self._check_marks()
        return True

    def _check_marks(self) -> None:
        """Leave the topics that the cluster deleted, by the marks in local copies. Raises
        TopicDeleted for a topic that no pattern matched.
        """
        for topic in {name[0] for name, each in self.cursors.items() if each.reader.is_deleted}:
            held = {name: each for name, each in self.cursors.items() if name[0] == topic}
            if self._is_over(held.values()):
                self._leave_deleted(topic, held)

    def _is_over(self, copies: Collection[Cursor]) -> bool:
        """Whether all copies of a topic are marked, because another node may send more of the
        others, and all their records were handed out.
        """
        return all(each.reader.is_deleted for each in copies) and not any(
            self._fill(each, CHUNK_BYTES) for each in copies
        )

    def _leave_deleted(self, topic: str, held: Mapping[Name, Cursor]) -> None:
        log_id = next(iter(held.values())).reader.topic_id
        deleted = TopicDeleted(topic, LOCAL_COPY_KEPT, log_id=log_id)
        if not self.choice.topics.is_by_pattern(topic):
            raise deleted
        log.warning("%s", deleted)
        self.choice.topics.leave(log_id)
        for name in held:
            self.let_go(name)

    def _check(self) -> None:
        """Raises what keeps a copy from growing for good."""
        new_topics = self.choice.new_topics
        while True:
            try:
                if new_topics is not None:
                    new_topics.check()
                return self.keeper.check()
            except LogReset as reset:
                self._begin_anew(reset)
            except TopicDeleted as deleted:
                self._leave(deleted)

    def _leave(self, deleted: TopicDeleted) -> None:
        """Go on without a topic, if a pattern meant it. Raises TopicDeleted."""
        topic, new_topics = deleted.topic, self.choice.new_topics
        if new_topics is None or not new_topics.leaves(topic, deleted.log_id):
            raise deleted
        for name in [each for each in (*self.cursors, *self._starting) if each[0] == topic]:
            self.let_go(name)

    def _recheck(self, cursor: Cursor) -> None:
        try:
            cursor.reader.recheck_segment()
        except OffsetNotHere as error:
            self._reset(cursor, error)
        except LogReset as reset:
            self._begin_anew(reset)

    def _begin_anew(self, reset: LogReset) -> None:
        """Leave the copy of a log that was restarted, all of which was handed out. Raises
        LogReset, if there is no rule for it.
        """
        name = reset.topic, reset.partition
        self.allow_anew(name)
        self.let_go(name)
        self.keeper.begin_anew(*name)
        self.next_rescan = 0.0

    def note_new(self, names: Iterable[str | Name]) -> None:
        """Read topics or partitions from their start: they are newer than the subscriber."""
        self._finder.note_new(names)

    def allow_anew(self, name: Name) -> None:
        """Drop the position wanted in a log that was restarted. Raises LogReset, if there is no
        rule for it.
        """
        self._finder.begin_anew(*name)

    def hold_back(self, name: Name) -> bool:
        """Hand out no more of a partition; whether all that was handed out is dealt with."""
        cursor = self.cursors.get(name)
        if cursor in self._turn:
            self._turn.remove(cursor)
        return cursor is None or cursor.done == cursor.position

    def let_go(self, name: Name) -> None:
        """Read a partition no more; no position of it is stored."""
        path = os.path.join(self._directory, f"{name[0]}-{name[1]}")
        for watched in (path, self._watched.pop(name, path)):
            self.waiter.forget(watched)
        starting = self._starting.pop(name, None)
        if starting is not None:
            starting.reader.close()
        cursor = self.cursors.pop(name, None)
        if cursor is not None:
            cursor.leave()
            if cursor in self._turn:
                self._turn.remove(cursor)
            self._saved.pop(name)

    # --- positions -----------------------------------------------------------------------------

    def settle(self) -> None:
        """The application asks for more: what it was handed is dealt with."""
        for cursor in self.cursors.values():
            cursor.done = cursor.position

    def undone(self) -> list[tuple[Name, int, int]]:
        """By partition, from where to where offsets were handed out and not dealt with."""
        return [
            (name, cursor.done, cursor.position)
            for name, cursor in self.cursors.items()
            if cursor.done < cursor.position
        ]

    def rewind(self) -> None:
        """Hand out again what was not dealt with. Raises OffsetOutOfRange: it was archived."""
        for name, done, _ in self.undone():
            self.cursors[name].put_back(done)

    def lose(self) -> None:
        """Be a member of the group no more, and join again: what was handed out and is not dealt
        with comes again, to whoever has it then.
        """
        self.rewind()
        if self.sharing is not None:
            self.sharing.membership.lose()

    def commit_one(self, name: Name) -> None:
        """Note what is dealt with of a partition."""
        cursor = self.cursors.get(name)
        if cursor is not None and self._store is not None:
            self._store.put(name[0], cursor.reader.topic_id, name[1], cursor.done)

    def commit(self, *, durable: bool) -> None:
        """PositionKeeper what is dealt with, if that is news. Raises DiskFault."""
        if self._store is None:
            return
        moved = {
            name: cursor
            for name, cursor in self.cursors.items()
            if cursor.done != self._saved[name]
        }
        for name, cursor in moved.items():
            self._store.put(name[0], cursor.reader.topic_id, name[1], cursor.done)
        if moved or durable:
            self._store.save(durable=durable)
        for name, cursor in moved.items():
            self._saved[name] = cursor.done

    def stop_copying(self) -> None:
        """Take up no more topics, and keep no copies."""
        if self.choice.new_topics is not None:
            self.choice.new_topics.close()
        self.keeper.stop()

    def close(self) -> None:
        """Close all files."""
        for cursor in self.cursors.values():
            cursor.reader.close()
        for starting in self._starting.values():
            starting.reader.close()
        if self._store is not None:
            self._store.close()
        self.waiter.close()
