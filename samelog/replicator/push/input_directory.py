"""One input of a publisher's session directory: its names, how it is shipped, and the tails of its
runs.

Invariant: `shipping` is what shipping.json says.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from functools import partial

from samelog.format.directory_files import RunByte, RunFile, ShippingFile, TopicFile
from samelog.format.errors import CorruptLog, OtherTopic
from samelog.format.file_names import SHIPPING_FILE, TOPIC_FILE, RunNames, data_name, parse_names
from samelog.format.positions import SessionPosition
from samelog.replicator.push.file_writer import FileWriter
from samelog.replicator.push.session_tail import PieceCache, RunTail
from samelog.store.disk.directories import DirectoryWatch
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.disk.json_files import read_json_file, write_json_file
from samelog.store.disk.quarantine import set_aside
from samelog.store.session.backlog_mark import publisher_mark
from samelog.store.session.directory import bind_topic
from samelog.wire.push.layout import part_layout

log = logging.getLogger(__name__)


class InputDirectory:
    """One input's directory: its names, and the tails of its runs that somebody follows."""

    def __init__(self, fs: FileSystem, path: str, pieces: PieceCache) -> None:
        """Raises LogFormatError."""
        self.path = path
        self.shipping = _read_shipping(fs, path)
        self.topic_id: str | None = None
        """Of the topic that the input is shipped to, once that is known."""
        self.is_unwritten = False
        """Whether the disk had no room for the topic's id."""
        self.is_withheld = False
        """Whether it is yet to be noted how the input is shipped from now on."""
        self.names: dict[int, RunNames] = {}
        self.tails: dict[int, RunTail] = {}
        self.identity: tuple[int, int] | None = None
        """Of the directory, when it was looked at first."""
        self._fs = fs
        self._pieces = pieces
        self._watch = DirectoryWatch(fs, path)
        self._writer = FileWriter()
        self._unbound = 0
        """How often `unbind` was called."""

    def look(self, *, always: bool) -> bool:
        """List the directory (if it may have changed); whether a run has come or gone."""
        before = self.names.keys()
        if self.identity is None:
            self.identity = self._fs.identity(self.path)
        if self._watch.needs_listing() or always:
            names = parse_names(self._fs.list_directory(self.path))
            self.names = {run: found for run, found in names.items() if found.data}
            for tail in self.tails.values():
                tail.look(names)
        return before != self.names.keys()

    def tail(self, run: int, start: RunByte | None) -> RunTail:
        """The tail of one run, or of its part that begins at `start`."""
        tail = self.tails.get(run)
        if tail is None:
            layout = part_layout(self.shipping, run, start)
            tail = self.tails[run] = RunTail(self._fs, self.path, run, self._pieces, layout)
            tail.look(self.names)
        return tail

    def reaches(self, run: RunFile) -> SessionPosition:
        """Up to where a run that is over is known to reach: where its writer says, or durable marks
        do.
        """
        place = (0, 0)
        if run.end is not None:
            place = run.end.get(os.path.basename(self.path), place)
        elif (mark := publisher_mark(self._fs, self.path, run.run)) is not None:
            place = mark.roll, mark.byte
        return SessionPosition(run.run, *place)

    def ship_differently(self, shipping: ShippingFile, *, durable: bool = True) -> None:
        """Write shipping.json and discard the tails opened earlier. Raises DiskFault."""
        write_json_file(self._fs, os.path.join(self.path, SHIPPING_FILE), shipping, durable=durable)
        is_moved = (shipping.begin, shipping.carried) != (
            self.shipping.begin,
            self.shipping.carried,
        )
        self.shipping = shipping
        if is_moved:
            for tail in self.tails.values():
                tail.close()
            self.tails.clear()

    def _may_be(self, topic_id: str) -> bool:
        """Whether the input may be shipped to this topic."""
        return topic_id not in self.shipping.former and self.topic_id in (None, topic_id)

    async def bind(self, topic_id: str) -> bool:
        """Note durably which topic the input is shipped to; False: it was another one. Raises
        LogFormatError.
        """
        return await self._writer.run(partial(self._bind, topic_id))

    async def _bind(self, topic_id: str) -> bool:
        if not self._may_be(topic_id):
            return False
        if self.topic_id == topic_id and not self.is_unwritten:
            return True
        unbound = self._unbound
        try:
            whose = TopicFile(topic_id=topic_id)
            await asyncio.to_thread(bind_topic, self._fs, self.path, whose)
        except OtherTopic:
            return False
        except NoSpace:
            self.is_unwritten = True
        else:
            self.is_unwritten = False
        if self._unbound != unbound:  # its topic was deleted meanwhile
            self.unbind()
            return False
        self.topic_id = topic_id
        return True

    async def finish_writes(self) -> None:
        """Wait until no thread writes the topic's id any more."""
        await self._writer.finish()

    def bind_at_once(self) -> None:
        """Try again to write the topic's id, for which there was no room."""
        if self.topic_id is not None and not self._writer.is_busy:
            with suppress(NoSpace):
                bind_topic(self._fs, self.path, TopicFile(topic_id=self.topic_id))
                self.is_unwritten = False

    def unbind(self) -> None:
        """What follows goes to another topic of this name. Raises DiskFault."""
        self.topic_id, self.is_unwritten = None, False
        self._unbound += 1
        path = os.path.join(self.path, TOPIC_FILE)
        if self._fs.exists(path):
            self._fs.unlink(path)

    @property
    def has_fresh_bytes(self) -> bool:
        """Whether there are bytes of the present topic: behind `begin`, or carried."""
        run, roll, byte = self.shipping.begin
        if self.shipping.carried:
            return True
        for own in self.names[run].data if run in self.names else ():
            if own > roll and self._size(run, own) > 0:
                return True
            if own == roll and self._size(run, own) > byte:
                return True
        return False

    def _size(self, run: int, roll: int) -> int:
        try:
            return self._fs.size(os.path.join(self.path, data_name(run, roll)))
        except NoSuchFile:
            return 0

    def has_bytes(self, run: int) -> bool:
        """Whether it has files of a run, or files of earlier ones that the run carries."""
        return run in self.names or (bool(self.shipping.carried) and run == self.shipping.begin[0])

    def file_end(self, run: int) -> SessionPosition | None:
        """The end of the newest file of a run; None: it has no file. Raises DiskFault."""
        if run not in self.names:
            return None
        roll = max(self.names[run].data)
        return SessionPosition(run, roll, self._size(run, roll))

    def bytes_behind(self, begin: RunByte) -> int:
        """Bytes in the files from a local position on."""
        run, roll, byte = begin
        total = 0
        for number, names in self.names.items():
            for own in names.data if number >= run else ():
                if number > run or own >= roll:
                    total += self._size(number, own)
        return max(0, total - (byte if roll in self._rolls(run) else 0))

    def _rolls(self, run: int) -> set[int]:
        return self.names[run].data if run in self.names else set()


def _read_shipping(fs: FileSystem, directory: str) -> ShippingFile:
    """What shipping.json says. A damaged one is set aside: topic.json still names the topic that
    the bytes were shipped to, so that nothing goes to another one. Raises LogFormatError.
    """
    path = os.path.join(directory, SHIPPING_FILE)
    try:
        return read_json_file(fs, path, ShippingFile) or ShippingFile()
    except CorruptLog as damage:
        log.error("%s; it is now %s", damage, set_aside(fs, path))
        return ShippingFile()
