# cython: language_level=3, embedsignature=True, initializedcheck=False
"""Kafka's primitive types, read with every bound checked, and written.

Why compiled: every request and every answer is a few dozen of these, and they cost more than what is done with them.

Flexible versions write lengths and counts as unsigned varints plus one, and end each structure with tagged fields;
older ones use fixed-size lengths (KIP-482).

Invariant: a reader never goes behind its end, and never returns more elements than there are bytes.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from samelog.kafka.codec.errors import ManyElements, MalformedRequest

ByteBuffer = bytes | bytearray | memoryview

UUID_BYTES = 16
ELEMENTS_MAX = 100_000  # in all arrays of one message: each becomes a value that takes many times its bytes
ELEMENTS_AT_ONCE = 100  # of a request, for one turn of the event loop
WRITTEN_AT_ONCE = 500  # of a response
ELEMENTS_UNLIMITED = 1 << 62

cdef enum:
    VARINT_BYTES = 5
    NULL_LENGTH = -1


@cython.final
cdef class MessageReader:
    """Reads values from `data`, one behind the other. All methods raise MalformedRequest; where more
    than `elements` elements and tagged fields are in it, ManyElements."""

    cdef readonly object data
    cdef public Py_ssize_t at
    cdef public bint flexible
    cdef public Py_ssize_t elements_left
    cdef Py_buffer _held
    cdef const uint8_t *_bytes
    cdef Py_ssize_t _size

    def __cinit__(self, data, Py_ssize_t at=0, *, bint flexible=False, Py_ssize_t elements=ELEMENTS_MAX):
        self.data = data if type(data) is memoryview else memoryview(data)
        PyObject_GetBuffer(data, &self._held, PyBUF_SIMPLE)
        self._bytes, self._size = <const uint8_t *>self._held.buf, self._held.len
        self.at, self.flexible, self.elements_left = at, flexible, elements

    def __dealloc__(self):
        PyBuffer_Release(&self._held)

    cdef const uint8_t *_take(self, Py_ssize_t size) except NULL:
        """The next bytes, which are behind the reader then."""
        cdef Py_ssize_t start = self.at
        if size < 0 or start < 0 or size > self._size - start:
            raise MalformedRequest(f"{size} bytes are wanted at {start}, {self._size - start} are left")
        self.at = start + size
        return self._bytes + start

    cdef int64_t _fixed(self, Py_ssize_t size) except? -1:
        cdef const uint8_t *found = self._take(size)
        cdef uint64_t value = 0
        cdef Py_ssize_t i
        for i in range(size):
            value = value << 8 | found[i]
        cdef int shift = 64 - 8 * <int>size
        return <int64_t>(value << shift) >> shift

    def int8(self):
        """A signed byte."""
        return self._fixed(1)

    def int16(self):
        """A signed 16-bit number."""
        return self._fixed(2)

    def int32(self):
        """A signed 32-bit number."""
        return self._fixed(4)

    def int64(self):
        """A signed 64-bit number."""
        return self._fixed(8)

    def fixed(self, layout):
        """Numbers that lie one behind the other."""
        cdef Py_ssize_t start = self.at
        self._take(layout.size)
        return layout.unpack_from(self.data, start)

    def uuid(self):
        """16 bytes."""
        return PyBytes_FromStringAndSize(<const char *>self._take(UUID_BYTES), UUID_BYTES)

    def raw(self, Py_ssize_t size):
        """Bytes as they are."""
        cdef Py_ssize_t start = self.at
        self._take(size)
        return self.data[start : start + size]

    cdef int64_t _uvarint(self) except -1:
        cdef uint64_t value = 0
        cdef uint8_t byte
        cdef int i
        for i in range(VARINT_BYTES):
            byte = self._take(1)[0]
            value |= <uint64_t>(byte & 0x7F) << 7 * i
            if byte < 0x80:
                if value >> 32:
                    break
                return <int64_t>value
        raise MalformedRequest(f"no varint of 32 bits at {self.at}")

    def uvarint(self):
        """An unsigned varint below 2^32."""
        return self._uvarint()

    cdef int64_t _length(self, Py_ssize_t size) except? -2:
        """A length or a count, which takes `size` bytes where it is not a varint; -1: null."""
        return self._uvarint() - 1 if self.flexible else self._fixed(size)

    cdef str _text(self, int64_t size):
        cdef const uint8_t *found = self._take(size)
        try:
            return PyUnicode_DecodeUTF8(<const char *>found, size, NULL)
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"a string is not UTF-8: {error.reason}") from error

    def nullable_string(self):
        """A string, or None."""
        cdef int64_t size = self._length(2)
        return None if size == NULL_LENGTH else self._text(size)

    def string(self):
        """A string."""
        cdef int64_t size = self._length(2)
        if size == NULL_LENGTH:
            raise MalformedRequest("a string is null that may not be")
        return self._text(size)

    def nullable_bytes(self):
        """Bytes, not copied, or None."""
        cdef int64_t size = self._length(4)
        return None if size == NULL_LENGTH else self.raw(size)

    def count(self, *, bint nullable=False):
        """How many elements an array has; 0 for null. Each takes at least a byte."""
        cdef int64_t count = self._length(4)
        if count == NULL_LENGTH and nullable:
            return 0
        self._check_count(count)
        return count

    def nullable_count(self):
        """How many elements an array has; None for null."""
        cdef int64_t count = self._length(4)
        if count == NULL_LENGTH:
            return None
        self._check_count(count)
        return count

    def array(self, read, *, bint nullable=False):
        """What `read` reads of this reader, as often as the array has elements; None for null."""
        cdef int64_t count = self._length(4)
        if count == NULL_LENGTH and nullable:
            return None
        self._check_count(count)
        cdef list found = []
        while count > 0:
            found.append(read(self))
            count -= 1
        return tuple(found)

    cdef void _check_count(self, int64_t count) except *:
        if count < 0 or count > self._size - self.at:
            raise MalformedRequest(f"an array claims {count} elements")
        if count > self.elements_left:
            raise ManyElements(f"an array claims {count} elements; {self.elements_left} more are taken")
        self.elements_left -= count

    def tags(self):
        """The tagged fields at the end of a structure; none in versions that have none."""
        cdef dict found = {}
        cdef int64_t tag, left
        if self.flexible:
            left = self._uvarint()
            self._check_count(left)
            while left > 0:
                tag = self._uvarint()
                found[tag] = self.raw(self._uvarint())
                left -= 1
        return found

    def skip_tags(self):
        """Go behind the tagged fields at the end of a structure, whatever they are."""
        cdef int64_t left = self._uvarint() if self.flexible else 0
        if left:
            self._check_count(left)
        while left > 0:
            self._uvarint()
            self._take(self._uvarint())
            left -= 1


@cython.final
cdef class MessageWriter:
    """Gathers a message as a list of buffers; large ones are taken over as they are. `elements`: how many
    elements all arrays may have together."""

    cdef readonly bint flexible
    cdef Py_ssize_t _elements_left
    cdef list _parts
    cdef bytearray _open

    def __cinit__(self, *, bint flexible=False, Py_ssize_t elements=WRITTEN_AT_ONCE):
        self.flexible, self._elements_left, self._parts, self._open = flexible, elements, [], bytearray()

    cdef void _fixed(self, int64_t value, Py_ssize_t size) except *:
        cdef uint8_t[8] data
        cdef Py_ssize_t i
        for i in range(size):
            data[i] = <uint8_t>(value >> 8 * (size - 1 - i))
        self._put(<const char *>data, size)

    cdef void _put(self, const char *data, Py_ssize_t size) except *:
        cdef Py_ssize_t start = PyByteArray_GET_SIZE(self._open)
        PyByteArray_Resize(self._open, start + size)
        memcpy(PyByteArray_AS_STRING(self._open) + start, data, size)

    def int8(self, int8_t value):
        """A signed byte."""
        self._fixed(value, 1)

    def int16(self, int16_t value):
        """A signed 16-bit number."""
        self._fixed(value, 2)

    def int32(self, int32_t value):
        """A signed 32-bit number."""
        self._fixed(value, 4)

    def int64(self, int64_t value):
        """A signed 64-bit number."""
        self._fixed(value, 8)

    def raw(self, bytes data not None):
        """Bytes as they are."""
        self._put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef void _uvarint(self, uint64_t value) except *:
        cdef uint8_t[10] data
        cdef Py_ssize_t size = 0
        while value >= 0x80:
            data[size] = <uint8_t>(0x80 | value & 0x7F)
            value >>= 7
            size += 1
        data[size] = <uint8_t>value
        self._put(<const char *>data, size + 1)

    def uvarint(self, uint64_t value):
        """An unsigned varint."""
        self._uvarint(value)

    cdef void _length(self, int64_t value, Py_ssize_t size) except *:
        """A length or a count, -1 for null; it takes `size` bytes where it is not a varint."""
        if self.flexible:
            self._uvarint(value + 1)
        else:
            self._fixed(value, size)

    def nullable_string(self, str value):
        """A string, or None."""
        cdef Py_ssize_t size = NULL_LENGTH
        cdef const char *data = NULL
        if value is not None:
            data = PyUnicode_AsUTF8AndSize(value, &size)
        self._length(size, 2)
        if size > 0:
            self._put(data, size)

    def size(self, int64_t value):
        """How many bytes follow; -1 for null."""
        self._length(value, 4)

    def count(self, int64_t value):
        """How many elements an array has; -1 for null. Raises ManyElements."""
        if value > self._elements_left:
            raise ManyElements("the response has more elements than one turn writes")
        self._elements_left -= value if value > 0 else 0
        self._length(value, 4)

    def buffers(self, parts):
        """Bytes that lie in several buffers, taken over without a copy."""
        cdef int64_t size = 0
        for part in parts:
            size += len(part)
        self._length(size, 4)
        self._parts.append(self._open)
        self._parts.extend(parts)
        self._open = bytearray()

    def tags(self, fields=()):
        """End a structure with tagged fields, in the order of their tags, where there are such."""
        if not self.flexible:
            return
        self._uvarint(len(fields))
        for tag, data in fields:
            self._uvarint(tag)
            self._uvarint(len(data))
            self.raw(data)

    def drain(self):
        """All that was written."""
        parts, self._parts = self._parts, []
        parts.append(self._open)
        self._open = bytearray()
        return [part for part in parts if len(part)]
