"""Kafka's primitive types, read with every bound checked, and written.

Flexible versions write lengths and counts as unsigned varints plus one, and end each structure with
tagged fields; older ones use fixed-size lengths (KIP-482).

Invariant: a reader never goes behind its end, and never returns more elements than there are bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from samelog.kafka.codec.errors import MalformedRequest

ByteBuffer: TypeAlias = bytes | bytearray | memoryview

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

    def __init__(self, data: ByteBuffer, at: int = 0, *, flexible: bool = False) -> None:
        self.data = memoryview(data)
        self.at = at
        self.flexible = flexible
        self._elements_left = ELEMENTS_MAX

    def _lacking(self, size: int) -> MalformedRequest:
        left = len(self.data) - self.at
        return MalformedRequest(f"{size} bytes are wanted at {self.at}, {left} are left")

    def _number(self, layout: struct.Struct) -> int:
        try:
            value: int = layout.unpack_from(self.data, self.at)[0]
        except struct.error as error:
            raise self._lacking(layout.size) from error
        self.at += layout.size
        return value

    def int8(self) -> int:
        """A signed byte."""
        return self._number(_INT8)

    def int16(self) -> int:
        """A signed 16-bit number."""
        return self._number(_INT16)

    def int32(self) -> int:
        """A signed 32-bit number."""
        return self._number(_INT32)

    def int64(self) -> int:
        """A signed 64-bit number."""
        return self._number(_INT64)

    def fixed(self, layout: struct.Struct) -> tuple[int, ...]:
        """Numbers that lie one behind the other."""
        try:
            values = layout.unpack_from(self.data, self.at)
        except struct.error as error:
            raise self._lacking(layout.size) from error
        self.at += layout.size
        return values

    def uuid(self) -> bytes:
        """16 bytes."""
        return self.raw(UUID_BYTES).tobytes()

    def raw(self, size: int) -> memoryview:
        """Bytes as they are."""
        start, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            raise self._lacking(size)
        self.at = end
        return self.data[start:end]

    def uvarint(self) -> int:
        """An unsigned varint below 2^32."""
        value = 0
        for shift in range(0, 7 * VARINT_BYTES, 7):
            if self.at >= len(self.data):
                raise self._lacking(1)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise MalformedRequest(f"no varint of 32 bits at {self.at}")

    def _text(self, size: int) -> str:
        start, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            raise self._lacking(size)
        self.at = end
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"a string is not UTF-8: {error.reason}") from error

    def nullable_string(self) -> str | None:
        """A string, or None."""
        size = self.uvarint() - 1 if self.flexible else self._number(_INT16)
        return None if size == -1 else self._text(size)

    def skip_string(self) -> None:
        """Skip a string or a null, without decoding it."""
        size = self.uvarint() - 1 if self.flexible else self._number(_INT16)
        if size != -1:
            self.raw(size)

    def string(self) -> str:
        """A string."""
        size = self.uvarint() - 1 if self.flexible else self._number(_INT16)
        if size == -1:
            raise MalformedRequest("a string is null that may not be")
        return self._text(size)

    def nullable_bytes(self) -> memoryview | None:
        """Bytes, not copied, or None."""
        size = self.uvarint() - 1 if self.flexible else self._number(_INT32)
        return None if size == -1 else self.raw(size)

    def count(self, *, nullable: bool = False) -> int:
        """How many elements an array has; 0 for null. Each takes at least a byte."""
        count = self.uvarint() - 1 if self.flexible else self._number(_INT32)
        if count == -1 and nullable:
            return 0
        if not 0 <= count <= self._elements_left or count > len(self.data) - self.at:
            raise MalformedRequest(f"an array claims {count} elements")
        self._elements_left -= count
        return count

    def tags(self) -> dict[int, memoryview]:
        """The tagged fields at the end of a structure; none in versions that have none."""
        found: dict[int, memoryview] = {}
        if not self.flexible:
            return found
        if self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1
            return found
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self.raw(self.uvarint())
        return found


class MessageWriter:
    """Gathers a message as a list of buffers; large ones are taken over as they are."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._parts: list[ByteBuffer] = []
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

    def nullable_string(self, value: str | None) -> None:
        """A string, or None."""
        data = None if value is None else value.encode()
        size = -1 if data is None else len(data)
        if not self.flexible:
            self._open += _INT16.pack(size)
        elif size < 0x7F:
            self._open.append(size + 1)
        else:
            self.uvarint(size + 1)
        self._open += data or b""

    def count(self, value: int) -> None:
        """How many elements an array has, or how many bytes follow; -1 for null."""
        if not self.flexible:
            self._open += _INT32.pack(value)
        elif value < 0x7F:
            self._open.append(value + 1)
        else:
            self.uvarint(value + 1)

    def buffers(self, parts: Sequence[ByteBuffer]) -> None:
        """Bytes that lie in several buffers, taken over without a copy."""
        self.count(sum(map(len, parts)))
        self._parts.append(self._open)
        self._parts.extend(parts)
        self._open = bytearray()

    def tags(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """End a structure with tagged fields, in the order of their tags, where there are such."""
        if not self.flexible:
            return
        if not fields:
            self._open.append(0)
            return
        self.uvarint(len(fields))
        for tag, data in fields:
            self.uvarint(tag)
            self.uvarint(len(data))
            self._open += data

    def drain(self) -> list[ByteBuffer]:
        """All that was written."""
        parts, self._parts = self._parts, []
        parts.append(self._open)
        self._open = bytearray()
        return [*filter(len, parts)]
