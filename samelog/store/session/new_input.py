"""Makes the directories of an input at a node with two rounds of syncs, which many inputs share.

The first round is of what the files hold and of the new directories' names, the second one of the
files' final names.

Invariant: a file that says whose a directory is has its name only once what it holds is durable.
"""

from __future__ import annotations

import os

from samelog.format.directory_files import SessionFile, TopicFile, Versioned, encode_directory_file
from samelog.format.file_names import SESSION_FILE, TOPIC_FILE
from samelog.store.disk.files import TEMPORARY_SUFFIX, File, FileSystem


class NewInput:
    """The directories of one input; `close` it when it is made, or cannot be."""

    def __init__(self, fs: FileSystem, session: SessionFile, path: str, whose: TopicFile) -> None:
        """`path`: of the input's directory, in that of its session."""
        self.path = path
        self.is_first = False
        """Whether neither the session nor the input had a directory before `write`."""
        self._fs = fs
        self._session = session
        self._whose = whose
        self._renames: list[str] = []
        """Final names of the files that have temporary ones."""
        self._open: list[File] = []

    def write(self) -> list[File]:
        """Make the directories and write the files under temporary names; returns what has to be
        synced before `rename`. Files that exist stay. Raises CorruptLog, DiskFault.
        """
        session = os.path.dirname(self.path)
        self.is_first = not self._fs.exists(session)
        self._fs.make_directory(session, durable=False)
        self._fs.make_directory(self.path, durable=False)
        self._write(os.path.join(session, SESSION_FILE), self._session)
        self._write(os.path.join(self.path, TOPIC_FILE), self._whose)
        self._open += map(self._fs.open_directory, (os.path.dirname(session), session))
        return list(self._open)

    def _write(self, path: str, value: Versioned) -> None:
        if self._fs.exists(path):
            return
        temporary = path + TEMPORARY_SUFFIX
        if self._fs.exists(temporary):
            self._fs.unlink(temporary)  # left by a crash
        file = self._fs.open(temporary, writable=True, create=True)
        self._open.append(file)
        file.pwrite(encode_directory_file(value), 0)
        self._renames.append(path)

    def rename(self) -> list[File]:
        """Give the files their names; returns what has to be synced. Raises NoSuchFile, DiskFault
        if another process removed them.
        """
        for path in self._renames:
            self._fs.rename(path + TEMPORARY_SUFFIX, path)
        session = os.path.dirname(self.path)
        names = list(map(self._fs.open_directory, (session, self.path)))
        self._open += names
        return names

    def close(self) -> None:
        """Close all files."""
        for file in self._open:
            file.close()
