"""Kafka's primitive types, read with every bound checked, and written.

Flexible versions write lengths and counts as unsigned varints plus one, and end each structure with
tagged fields; older ones use fixed-size lengths (KIP-482).

Invariant: a reader never goes behind its end, and never returns more elements than there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.kafka.codec.errors import MalformedRequest

if TYPE_CHECKING:
    from typing_extensions import Buffer

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
UUID_BYTES = 16
VARINT_BYTES = 5
ELEMENTS_MAX = 100_000
"""In all arrays of one message: each becomes a value that takes many times its bytes."""


class MessageReader:
    """Reads values from `data`, one behind the other. All methods raise MalformedRequest."""

    def __init__(self, data: Buffer, at: int = 0, *, flexible: bool = False) -> None:
        self.data = memoryview(data)
        self.at = at
        self.flexible = flexible
        self._elements_left = ELEMENTS_MAX

    def _take(self, size: int) -> int:
        """Go `size` bytes on: where they start."""
        start, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            left = len(self.data) - start
            raise MalformedRequest(f"{size} bytes are wanted at {start}, {left} are left")
        self.at = end
        return start

    def int8(self) -> int:
        """A signed byte."""
        return int(_INT8.unpack_from(self.data, self._take(1))[0])

    def int16(self) -> int:
        """A signed 16-bit number."""
        return int(_INT16.unpack_from(self.data, self._take(2))[0])

    def int32(self) -> int:
        """A signed 32-bit number."""
        return int(_INT32.unpack_from(self.data, self._take(4))[0])

    def int64(self) -> int:
        """A signed 64-bit number."""
        return int(_INT64.unpack_from(self.data, self._take(8))[0])

    def uuid(self) -> bytes:
        """16 bytes."""
        return self.raw(UUID_BYTES).tobytes()

    def raw(self, size: int) -> memoryview:
        """Bytes as they are."""
        start = self._take(size)
        return self.data[start : self.at]

    def uvarint(self) -> int:
        """An unsigned varint below 2^32."""
        value = 0
        for shift in range(0, 7 * VARINT_BYTES, 7):
            byte = self.data[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise MalformedRequest(f"no varint of 32 bits at {self.at}")

    def _length(self, *, wide: bool) -> int:
        """A length; -1 for null."""
        if self.flexible:
            return self.uvarint() - 1
        return self.int32() if wide else self.int16()

    def nullable_string(self) -> str | None:
        """A string, or None."""
        size = self._length(wide=False)
        if size == -1:
            return None
        try:
            return str(self.raw(size), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"a string is not UTF-8: {error.reason}") from error

    def skip_string(self) -> None:
        """A string, or none, whatever is in it."""
        size = self._length(wide=False)
        if size != -1:
            self.raw(size)

    def string(self) -> str:
        """A string."""
        value = self.nullable_string()
        if value is None:
            raise MalformedRequest("a string is null that may not be")
        return value

    def nullable_bytes(self) -> memoryview | None:
        """Bytes, not copied, or None."""
        size = self._length(wide=True)
        return None if size == -1 else self.raw(size)

    def count(self) -> int:
        """How many elements an array has; 0 for null. Each takes at least a byte."""
        count = self._length(wide=True)
        if count < -1 or count > min(len(self.data) - self.at, self._elements_left):
            raise MalformedRequest(f"an array claims {count} elements")
        self._elements_left -= max(count, 0)
        return max(count, 0)

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields at the end of a structure; none in versions that have none."""
        found: dict[int, memoryview] = {}
        if self.flexible:
            for _ in range(self.uvarint()):
                tag = self.uvarint()
                found[tag] = self.raw(self.uvarint())
        return found


class MessageWriter:
    """Gathers a message as a list of buffers; large ones are taken over as they are."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._parts: list[Buffer] = []
        self._open = bytearray()

    def int8(self, value: int) -> None:
        """A signed byte."""
        self._open += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """A signed 16-bit number."""
        self._open += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """A signed 32-bit number."""
        self._open += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """A signed 64-bit number."""
        self._open += _INT64.pack(value)

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._open += data

    def uvarint(self, value: int) -> None:
        """An unsigned varint."""
        while value >= 0x80:
            self._open.append(0x80 | value & 0x7F)
            value >>= 7
        self._open.append(value)

    def _length(self, value: int, *, wide: bool) -> None:
        if self.flexible:
            self.uvarint(value + 1)
        elif wide:
            self.int32(value)
        else:
            self.int16(value)

    def nullable_string(self, value: str | None) -> None:
        """A string, or None."""
        if value is None:
            self._length(-1, wide=False)
            return
        data = value.encode()
        self._length(len(data), wide=False)
        self._open += data

    def count(self, value: int) -> None:
        """How many elements an array has; -1 for null."""
        self._length(value, wide=True)

    def buffers(self, parts: Sequence[Buffer]) -> None:
        """Bytes that lie in several buffers, taken over without a copy."""
        sizes = [memoryview(part).nbytes for part in parts]
        self._length(sum(sizes), wide=True)
        self._parts.append(self._open)
        self._parts.extend(parts)
        self._open = bytearray()

    def no_tags(self) -> None:
        """End a structure without tagged fields."""
        if self.flexible:
            self._open.append(0)

    def tags(self, fields: list[tuple[int, bytes]]) -> None:
        """End a structure with tagged fields, in the order of their tags."""
        if not self.flexible:
            return
        self.uvarint(len(fields))
        for tag, data in fields:
            self.uvarint(tag)
            self.uvarint(len(data))
            self._open += data

    def take(self) -> list[Buffer]:
        """All that was written."""
        parts, self._parts = self._parts, []
        parts.append(self._open)
        self._open = bytearray()
        return [part for part in parts if memoryview(part).nbytes]
