"""Linux inotify, raw: the cheapest way to notice that a file has grown.

Usable from an event loop (`attach`) and from a plain thread (`wait`). The kernel drops events when
its queue is full and says so once; the reader must then rescan everything, so it is an event of
its own. inotify can miss changes in other ways (network file systems, bind mounts), so users poll
slowly besides.

Invariant: whatever the kernel puts into the queue comes out as events in its order; nothing is
lost unsaid. Source of the format: inotify(7).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import select
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import ClassVar, TypeVar

import msgspec

from samelog.runtime.linger import Linger

log = logging.getLogger(__name__)

READ_BYTES = 64 << 10
_EVENT = struct.Struct("iIII")
LIMITS = {
    errno.EMFILE: "fs.inotify.max_user_instances (sysctl), or the limit of open files,",
    errno.ENFILE: "fs.file-max (sysctl)",
    errno.ENOSPC: "fs.inotify.max_user_watches (sysctl)",
}
"""What to raise when there is no inotify to be had; a program goes on without, by polling."""
AnyInotify = TypeVar("AnyInotify", "Inotify", "LoopInotify")
_NAMES, _NAME_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class Mask(IntEnum):
    """What to be told about, and what happened (inotify(7)); to be combined as plain numbers, which
    cost a tenth of what flags do.
    """

    MODIFY = 0x2
    ATTRIB = 0x4
    CLOSE_WRITE = 0x8
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    UNMOUNT = 0x2000
    OVERFLOW = 0x4000
    IGNORED = 0x8000
    ONLYDIR = 0x1000000
    DONT_FOLLOW = 0x2000000
    IS_DIR = 0x40000000


DIRECTORY_CHANGED = Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.MOVE_SELF


class Event(msgspec.Struct, frozen=True):
    """One event of what `add` called `watch` (OVERFLOW: -1); `name`: a directory's entry."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One inotify instance."""

    def __init__(self) -> None:
        """Raises OSError when the user has too many instances (fs.inotify.max_user_instances)."""
        self._fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callback: Callable[[list[Event]], None]
        self.linger = Linger(0.0)
        self._gap: asyncio.TimerHandle | None = None
        """Set while the kernel gathers events."""

    def fileno(self) -> int:
        """The descriptor, readable when there are events."""
        return self._fd

    def add(self, path: str, mask: int) -> int:
        """Watch a file or directory; returns its watch. Adding a path again replaces its mask.

        Raises:
            OSError: no such path, or too many watches (fs.inotify.max_user_watches).
        """
        result = _libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        return _checked(result, path)

    def remove(self, watch: int) -> None:
        """Stop watching. Raises OSError when the watch is gone already."""
        _checked(_libc.inotify_rm_watch(self._fd, watch), f"watch {watch}")

    def read(self) -> list[Event]:
        """The events there are now, without waiting."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return []
        return parse_events(data)

    def wait(self, timeout_s: float) -> list[Event]:
        """The next events, waiting in this thread; none: `timeout_s` is over."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.poll(max(0.0, timeout_s) * 1000)
        return self.read()

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[list[Event]], None],
    ) -> None:
        """Have the loop call `callback` with new events, until `close`. While events follow each
        other closely, the kernel gathers them as `linger` decides.
        """
        self._loop = loop
        self._callback = callback
        loop.add_reader(self._fd, self._ready)

    def hurry(self) -> None:
        """Report the events that wait now, because something waits for what follows from them."""
        if self._loop is not None:
            self._end_gap(self._loop)

    def _ready(self) -> None:
        loop = self._loop
        if loop is None:
            return
        wait_s = self.linger.wait_s(loop.time())
        if wait_s > 0:
            loop.remove_reader(self._fd)
            self._gap = loop.call_later(wait_s, self._end_gap, loop)
        elif events := self.read():
            self._callback(events)

    def _end_gap(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None
            loop.add_reader(self._fd, self._ready)
        if events := self.read():
            self.linger.sent(loop.time())
            self._callback(events)

    def close(self) -> None:
        """Give everything back."""
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LoopInotify:
    """A part of the one instance that all who watch in an event loop share. As Inotify, but that
    each tells its own part only what happened to what was added there, and the linger is common.
    """

    def __init__(self) -> None:
        """To be made in the loop. Raises OSError as Inotify."""
        self._shared = _SharedInotify.of(asyncio.get_running_loop())
        self._shared.parts += 1
        self._watches: list[int] = []
        self.callback: Callable[[list[Event]], None] | None = None
        """Takes the events of what was added here, and overflows; None until `attach`."""

    def add(self, path: str, mask: int) -> int:
        """As Inotify.add; no other part may watch the same path."""
        watch = self._shared.inotify.add(path, mask)
        self._shared.owners[watch] = self
        self._watches.append(watch)
        return watch

    def attach(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[list[Event]], None]
    ) -> None:
        """As Inotify.attach."""
        self.callback = callback
        self._shared.attach(loop)

    @property
    def linger(self) -> Linger:
        """What gathers the events of all parts."""
        return self._shared.inotify.linger

    def hurry(self) -> None:
        """As Inotify.hurry."""
        self._shared.inotify.hurry()

    def close(self) -> None:
        """Watch no more."""
        self.callback = None
        for watch in self._watches:
            if self._shared.owners.pop(watch, None) is not None:
                with suppress(OSError):  # it went with its directory
                    self._shared.inotify.remove(watch)
        self._shared.part_closed()


class _SharedInotify:
    """What the parts have in common."""

    _of_loops: ClassVar[dict[asyncio.AbstractEventLoop, _SharedInotify]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.inotify = Inotify()
        self.owners: dict[int, LoopInotify] = {}
        self.parts = 0
        self._loop = loop
        self._is_attached = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _SharedInotify:
        """The one of a loop."""
        found = cls._of_loops.get(loop)
        if found is None:
            found = cls._of_loops[loop] = cls(loop)
        return found

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen, from the first part on that wants to."""
        if not self._is_attached:
            self._is_attached = True
            self.inotify.attach(loop, self._sort)

    def _sort(self, events: list[Event]) -> None:
        """Tell each part its own; of lost events nobody knows whose they were."""
        of_parts: dict[LoopInotify, list[Event]] = {}
        for event in events:
            if event.mask & Mask.OVERFLOW:
                of_parts = {part: [event] for part in self.owners.values()}
                break
            part = self.owners.get(event.watch)
            if part is not None:
                of_parts.setdefault(part, []).append(event)
                if event.mask & Mask.IGNORED:
                    del self.owners[event.watch]
        for part, mine in of_parts.items():
            if part.callback is not None:
                part.callback(mine)

    def part_closed(self) -> None:
        """Give the instance back with the last part."""
        self.parts -= 1
        if not self.parts:
            del self._of_loops[self._loop]
            self.inotify.close()


def open_or_warn(new_inotify: Callable[[], AnyInotify]) -> AnyInotify | None:
    """None when one of LIMITS is reached: whoever asks has to poll."""
    try:
        return new_inotify()
    except OSError as error:
        warn_of_polling(error)
        return None


def warn_of_polling(error: OSError) -> None:
    """Say why changes are noticed later than they could be, and what to raise."""
    limit = LIMITS.get(error.errno or 0, "its limits (sysctl fs.inotify)")
    log.warning("no inotify, polling instead: %s; raise %s to notice at once", error, limit)


def parse_events(data: bytes) -> list[Event]:
    """What the kernel returns: int watch, u32 mask, cookie and length, name padded with zeros."""
    events: list[Event] = []
    at = 0
    while at < len(data):
        watch, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        name = data[at : at + length].rstrip(b"\0").decode(_NAMES, _NAME_ERRORS)
        events.append(Event(watch, mask, name))
        at += length
    return events


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
