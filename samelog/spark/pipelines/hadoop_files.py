"""Files of any file system that Hadoop knows by URL, as the driver sees them through its JVM.

Invariant: of several that `create` the same file, one does, and nobody sees a part of it. That is
what the file system gives: hard links where it is this host's, else a rename that refuses to
replace (HDFS, ABFS, Google's). S3A has neither: one writer at a time, there.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

LOCAL = "file"
RECURSIVELY = True


class FileFacts(NamedTuple):
    """A file below the root: its path there, bytes, and when it was changed (ms since 1970)."""

    path: str
    size: int
    modified_ms: int


class HadoopFiles:
    """The files below `root`, a URL (or a path of Hadoop's default file system)."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._conf = spark._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(root)
        self._files = path.getFileSystem(self._conf)
        qualified = self._files.makeQualified(path)
        self.root: str = qualified.toString().rstrip("/")
        self._is_local = qualified.toUri().getScheme() == LOCAL
        self._root_path: str = qualified.toUri().getPath().rstrip("/")

    def url(self, path: str) -> str:
        """Of a file below the root."""
        return f"{self.root}/{path}"

    def below(self, url: Column) -> Column:
        """A column `path`, below the root, of a column of URLs as Spark gives them."""
        root = rf"^[^:/]+:(?://[^/]*)?\Q{self._root_path}\E/(.*)$"
        plus = functions.replace(url, functions.lit("+"), functions.lit("%2B"))
        return functions.regexp_extract(functions.url_decode(plus), root, 1).alias("path")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    def read(self, path: str) -> bytes | None:
        """A file's bytes; None if there is no such file."""
        where = self._path(path)
        if not self._files.exists(where):
            return None
        stream = self._files.open(where)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def replace(self, path: str, data: bytes) -> None:
        """Write a file that may be there already. Whoever reads it meanwhile may see a part."""
        self._write(path, data, may_replace=True)

    def create(self, path: str, data: bytes) -> bool:
        """Create a file, whole; False: it is there already, and stays as it is."""
        temporary = f"{path}.{uuid.uuid4().hex}.new"
        if self._is_local:
            return _link(os.path.join(self._root_path, temporary), path, data)
        self._write(temporary, data, may_replace=False)
        try:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._files.getUri(), self._conf
            )
            none = self._gateway.new_array(self._jvm.org.apache.hadoop.fs.Options.Rename, 0)
            context.rename(self._path(temporary), self._path(path), none)
        except Py4JJavaError as error:
            self._files.delete(self._path(temporary), not RECURSIVELY)
            if "FileAlreadyExists" not in error.java_exception.getClass().getName():
                raise
            return False
        return True

    def _write(self, path: str, data: bytes, *, may_replace: bool) -> None:
        stream = self._files.create(self._path(path), may_replace)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def walk(self, path: str = "") -> Iterator[FileFacts]:
        """All files below a directory, those of its directories, too."""
        where = self._path(path) if path else self._jvm.org.apache.hadoop.fs.Path(self.root)
        if not self._files.exists(where):
            return
        found = self._files.listFiles(where, RECURSIVELY)
        while found.hasNext():
            status = found.next()
            below = status.getPath().toString()[len(self.root) + 1 :]
            yield FileFacts(below, status.getLen(), status.getModificationTime())

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; that it is not there is no error."""
        self._files.delete(self._path(path), RECURSIVELY)


def _link(temporary: str, path: str, data: bytes) -> bool:
    """As `create`, in this host's file system; `temporary`: an absolute path beside the file's."""
    target = os.path.join(os.path.dirname(temporary), os.path.basename(path))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True
