"""Where copies of segments are put: a directory, or any file system that pyarrow or fsspec knows.

A directory's files are synced to its disk and get their names last; an object store shows an object
once all of it is there; elsewhere a file is written under another name and then moved. In any case
a copy counts only once its manifest is there.

Invariant: errors of file systems leave this seam as CopyFault, which names the target; those of
libraries that are not known here end the process that copies, which is one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from samelog.archiver.copies.manifests import CopyFault
from samelog.config.values import is_url

TEMPORARY = ".tmp"
REASON_CHARACTERS = 300
OBJECT_STORES = ("s3", "gcs", "abfs")
"""What pyarrow calls them: their objects appear whole, and moving one is copying it."""


class Upload(Protocol):
    """A file being written at a target: it is there after `commit`, and not after `abort`."""

    def write(self, data: Any) -> int:
        """Add bytes. Returns how many."""

    def commit(self) -> None:
        """Give the file its name, durably."""

    def abort(self) -> None:
        """Leave nothing behind, as far as the target lets it."""


class Target(Protocol):
    """Where copies are. Names are relative, with slashes. Every method raises CopyFault."""

    def create(self, name: str) -> Upload:
        """Begin a file, which replaces one of this name."""

    def open(self, name: str) -> Any:
        """A file for reading, at any place; None if there is none."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if there is none."""


def open_target(url: str) -> Target:
    """The target of a URL, or of a directory's path. Raises CopyFault."""
    if not is_url(url):
        return DirectoryTarget(url)
    if urlsplit(url).scheme == "file":
        return DirectoryTarget(urlsplit(url).path)
    return _ArrowTarget(url)


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Raise errors of reading and writing as CopyFault, with where they happened."""
    try:
        yield
    except (OSError, ValueError) as error:  # pyarrow's are one or the other
        raise CopyFault(f"{where}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """A line of it: some libraries tell all that they have tried."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0][:REASON_CHARACTERS]


class DirectoryTarget:
    """A directory of this host."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create(self, name: str) -> Upload:
        """Begin a file."""
        path = os.path.join(self._path, name)
        with translated_errors(path):
            if not os.path.isdir(self._path):
                raise CopyFault(f"{self._path} is not a directory: is it mounted?")
            _make_directories(self._path, os.path.dirname(name))
            return _LocalUpload(path)

    def open(self, name: str) -> BinaryIO | None:
        """A file for reading."""
        path = os.path.join(self._path, name)
        with translated_errors(path), suppress(FileNotFoundError):
            return open(path, "rb")
        return None

    def list(self, directory: str) -> list[str]:
        """The names in a directory."""
        path = os.path.join(self._path, directory)
        with translated_errors(path), suppress(FileNotFoundError):
            return sorted(os.listdir(path))
        return []


def _make_directories(root: str, below: str) -> None:
    """Make directories, durably."""
    at = root
    for part in below.split("/"):
        parent, at = at, os.path.join(at, part)
        if not os.path.isdir(at):
            with suppress(FileExistsError):
                os.mkdir(at)
            _sync(parent)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _LocalUpload:
    def __init__(self, path: str) -> None:
        directory, name = os.path.split(path)
        self._path = path
        self._temporary = os.path.join(directory, f".{name}{TEMPORARY}")
        self._file = open(self._temporary, "wb")  # noqa: SIM115

    def write(self, data: Any) -> int:
        """Add bytes."""
        with translated_errors(self._path):
            return self._file.write(data)

    def commit(self) -> None:
        """Sync it, and give it its name."""
        with translated_errors(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.rename(self._temporary, self._path)
            _sync(os.path.dirname(self._path))

    def abort(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self._temporary)


class _ArrowTarget:
    """Anything else, as pyarrow shows it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = _file_system(url)
        self._moves = self._files.type_name not in OBJECT_STORES

    def create(self, name: str) -> Upload:
        """Begin a file."""
        path = f"{self._root}/{name}"
        with translated_errors(f"{self._url}: {name}"):
            if self._moves:
                self._files.create_dir(path.rpartition("/")[0], recursive=True)
            return _ArrowUpload(self._files, path, moves=self._moves)

    def open(self, name: str) -> Any:
        """A file for reading."""
        with translated_errors(f"{self._url}: {name}"), suppress(FileNotFoundError):
            return self._files.open_input_file(f"{self._root}/{name}")
        return None

    def list(self, directory: str) -> list[str]:
        """The names in a directory."""
        from pyarrow.fs import FileSelector

        with translated_errors(f"{self._url}: {directory}"):
            wanted = FileSelector(f"{self._root}/{directory}", allow_not_found=True)
            return sorted(each.base_name for each in self._files.get_file_info(wanted))


class _ArrowUpload:
    def __init__(self, files: Any, path: str, *, moves: bool) -> None:
        directory, _, name = path.rpartition("/")
        self._files = files
        self._path = path
        self._written = f"{directory}/.{name}{TEMPORARY}" if moves else path
        self._stream = files.open_output_stream(self._written)
        self._has_failed = False

    def write(self, data: Any) -> int:
        """Add bytes."""
        with self._noting_failure():
            self._stream.write(data)
        return len(data)

    def commit(self) -> None:
        """Finish it, and give it its name."""
        with self._noting_failure():
            self._stream.close()
            if self._written != self._path:
                self._files.move(self._written, self._path)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        self._has_failed = True
        with translated_errors(self._path):
            yield
        self._has_failed = False

    def abort(self) -> None:
        """An object store takes what was written so far for the whole: that goes again. What it
        has not taken is no object.
        """
        is_object = self._written == self._path
        if self._has_failed and is_object:
            return
        try:
            self._stream.close()
        except (OSError, ValueError):
            if is_object:
                return
        with suppress(OSError, ValueError):
            self._files.delete_file(self._written)


def _file_system(url: str) -> tuple[Any, str]:
    """Pyarrow's file system of a URL, or else fsspec's, and the path in it. Raises CopyFault."""
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem
    except ImportError as error:
        text = f"{url} needs pyarrow: install samelog with the extra 'archive'"
        raise CopyFault(text) from error
    try:
        files, path = FileSystem.from_uri(url)
    except ArrowInvalid as error:
        if "nrecognized filesystem" not in str(error):
            raise CopyFault(f"{url}: {_reason(error)}") from error
        return _fsspec(url)
    except (OSError, ValueError) as error:
        raise CopyFault(f"{url}: {_reason(error)}") from error
    return files, path.rstrip("/")


def _fsspec(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        files, path = url_to_fs(url)
    except ImportError as error:  # of fsspec itself, or of what it needs for this scheme
        raise CopyFault(f"{url}: {error}") from error
    except (OSError, ValueError) as error:
        raise CopyFault(f"{url}: {_reason(error)}") from error
    return PyFileSystem(FSSpecHandler(files)), path.rstrip("/")
