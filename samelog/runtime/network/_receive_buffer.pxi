# Memory for what a connection receives: bytes are decrypted straight into it, frames are cut in place.
#
# It starts small and grows as bytes have really come, at most doubling, up to the longest frame a header may announce:
# a header alone costs the receiver nothing. `trim` gives memory back when a while passed without big frames.

SMALLEST_BYTES = 16 << 10
ROOM_BYTES = 256 << 10

cdef enum:
    HEADER_BYTES = 12
    TYPES = 5

cdef struct Bounds:
    uint32_t least
    uint32_t limit

cdef Bounds bounds[TYPES]
cdef list frame_types = [None] * TYPES
cdef uint8_t version

for (_number, _version, _), (_type, _least, _limit) in KINDS.items():
    version = _version
    frame_types[_number] = _type
    bounds[<int>_number] = Bounds(_least, _limit)


cdef inline uint32_t _u32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


@cython.final
cdef class ReceiveBuffer:
    """Bytes received but not handled yet, and room for more.

    Invariant: `start <= stop <= capacity`; bytes [start, stop) are received and not yet handled. Who writes into the
    room moves `stop`.
    """

    cdef public Py_ssize_t start
    cdef public Py_ssize_t stop
    cdef readonly object memory
    cdef readonly object partial
    cdef char *_bytes
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _most_used

    def __cinit__(self):
        self.partial = PartialBatch()
        self._take(SMALLEST_BYTES)

    def __len__(self):
        return self.stop - self.start

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return self._capacity

    def room(self, Py_ssize_t wanted) -> memoryview:
        """Where the next bytes go: at least one byte, `wanted` if that is within bounds."""
        self._want(wanted)
        return self.memory[self.stop:]

    def next(self):
        """Type, channel and payload of the next frame, or None: need more. Raises FrameError."""
        cdef Py_ssize_t begin = self.start + HEADER_BYTES, end
        if self.stop < begin:
            return None
        cdef const uint8_t *header = <const uint8_t *>self._bytes + self.start
        cdef uint32_t length = _u32(header), number = header[4]
        if not _is_sound(header):
            raise bad_header(length, number, header[5], header[6] << 8 | header[7])
        end = begin + length
        if self.stop < end:
            return None
        self.start = end
        return frame_types[number], _u32(header + 8), self.memory[begin:end]

    def take_all(self) -> bytes:
        """All that is held, handled from now on."""
        cdef bytes data = PyBytes_FromStringAndSize(self._bytes + self.start, self.stop - self.start)
        self.start = self.stop = 0
        return data

    def trim(self) -> None:
        """Give memory back that was not needed since the last call."""
        if self.start == self.stop and self._most_used <= SMALLEST_BYTES < self._capacity:
            self._take(SMALLEST_BYTES)
            self.start = self.stop = 0
        self._most_used = 0

    cdef int _want(self, Py_ssize_t wanted) except -1:
        """Make room for so many bytes, as far as that is within bounds."""
        if self.start == self.stop:
            self.start = self.stop = 0
        wanted = max(1, min(wanted, <Py_ssize_t>ROOM_BYTES))
        if self._capacity - self.stop < wanted:
            self._make_room(wanted)
        return 0

    cdef int _make_room(self, Py_ssize_t wanted) except -1:
        """Move what is held to the front; where that is not enough, to twice the memory."""
        cdef Py_ssize_t held = self.stop - self.start
        cdef object old = self.memory
        cdef const char *data = self._bytes + self.start
        self._most_used = max(self._most_used, held + wanted)
        if self._capacity - held < wanted:
            most = LONGEST_FRAME_BYTES + ROOM_BYTES
            self._take(min(most, max(2 * self._capacity, held + wanted)))
        memmove(self._bytes, data, held)
        self.start, self.stop = 0, held
        return 0

    cdef int _take(self, Py_ssize_t capacity) except -1:
        """New memory; it is not zeroed, as nobody sees of it what was not written."""
        cdef bytearray memory = PyByteArray_FromStringAndSize(NULL, capacity)
        self._capacity = capacity
        self._bytes = PyByteArray_AS_STRING(memory)
        self.memory = memoryview(memory)
        return 0


cdef inline bint _is_sound(const uint8_t *header) noexcept nogil:
    cdef uint32_t length = _u32(header)
    if header[5] != version or header[6] or header[7]:
        return False
    if header[4] >= TYPES:
        return False
    return bounds[header[4]].least <= length <= bounds[header[4]].limit and length > 0
