"""A read of a merged log that a thread carries out, whatever becomes of the log meanwhile.

The log's own files are the event loop's, which may close them at any time; this has a descriptor of
its own, which is closed when nobody needs it any more. Invariant: what is read is whole batches, of
the file that was there when the read was made; where that was cut meanwhile, nothing is.
"""

from __future__ import annotations

import os

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, told_size
from samelog.format.errors import CorruptLog
from samelog.store.disk.disk_errors import fault_of
from samelog.store.disk.files import File


class _Descriptor:
    """Of an open file, until it is forgotten."""

    def __init__(self, file: File) -> None:
        self.number = os.dup(file.fileno())

    def __del__(self) -> None:
        os.close(self.number)


class DetachedRead:
    """Of one piece. To be called once, in any thread."""

    def __init__(self, file: File, byte: int, stop: int, limit_bytes: int) -> None:
        """From `byte` on, of a file that ends at `stop`."""
        self._path = file.path
        self._byte, self._stop, self._limit_bytes = byte, stop, limit_bytes
        self._descriptor = _Descriptor(file) if byte < stop else None

    def __call__(self) -> bytes:
        """Whole batches, at most so many bytes, but at least one if there is any. Raises
        CorruptLog, DiskFault.
        """
        size = self._stop - self._byte
        data = self._read(min(self._limit_bytes, size))
        scan = kernels.scan(data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES)
        if not scan.end and scan.short and len(data) >= LENGTH_PREFIX_BYTES:
            data = self._read(min(told_size(data), size))
            scan = kernels.scan(
                data, verify_crc=False, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1
            )
        if not scan.end and size > 0:
            raise CorruptLog(self._path, self._byte, scan.error or "the batch is cut")
        return data[: scan.end]

    def _read(self, size: int) -> bytes:
        if self._descriptor is None:
            return b""
        try:
            data = os.pread(self._descriptor.number, size, self._byte)
            while 0 < len(data) < size:
                more = os.pread(self._descriptor.number, size - len(data), self._byte + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise fault_of(self._path, "read", error) from error
        return data
