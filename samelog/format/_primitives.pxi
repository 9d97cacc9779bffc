# What all kernels share: the CRC, big-endian loads and stores, varints, a growing buffer, and the batch header.

cdef extern from "_crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_update(uint32_t value, const uint8_t *data, size_t size)
    uint32_t crc32c_tables(uint32_t state, const uint8_t *data, size_t size)

cdef extern from * nogil:
    """
    static inline uint32_t samelog_load32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint64_t samelog_load64(const uint8_t *p) {
        return (uint64_t)samelog_load32(p) << 32 | samelog_load32(p + 4);
    }
    static inline void samelog_store16(uint8_t *p, uint16_t v) { p[0] = v >> 8; p[1] = v & 255; }
    static inline void samelog_store32(uint8_t *p, uint32_t v) { samelog_store16(p, v >> 16); samelog_store16(p + 2, v & 65535); }
    static inline void samelog_store64(uint8_t *p, uint64_t v) { samelog_store32(p, v >> 32); samelog_store32(p + 4, v); }
    /* Zigzag: small numbers of either sign become small numbers without one. */
    static inline uint64_t samelog_zigzag(int64_t v) { return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0); }
    static inline int64_t samelog_unzigzag(uint64_t v) { return (int64_t)(v >> 1 ^ (0 - (v & 1))); }
    static inline int samelog_varint_size(int64_t v) {
        return (70 - __builtin_clzll(samelog_zigzag(v) | 1)) / 7;
    }
    static inline uint8_t *samelog_put_varint(uint8_t *p, int64_t value) {
        uint64_t v = samelog_zigzag(value);
        for (; v >= 128; v >>= 7) *p++ = (uint8_t)(v | 128);
        *p++ = (uint8_t)v;
        return p;
    }
    /* Reads a varint of at most `bits` bits; returns the position behind it, or NULL if it is longer or cut off. */
    static inline const uint8_t *samelog_get_varint(const uint8_t *p, const uint8_t *end, int bits, int64_t *value) {
        uint64_t v = 0;
        if (p < end && *p < 128) { *value = samelog_unzigzag(*p); return p + 1; }
        for (int shift = 0; p < end && shift < bits; shift += 7) {
            uint8_t byte = *p++;
            if (shift + 7 > bits && (byte & 127) >> (bits - shift)) return 0;
            v |= (uint64_t)(byte & 127) << shift;
            if (byte < 128) { *value = samelog_unzigzag(v); return p; }
        }
        return 0;
    }
    """
    uint32_t load32 "samelog_load32"(const uint8_t *p)
    uint64_t load64 "samelog_load64"(const uint8_t *p)
    void store16 "samelog_store16"(uint8_t *p, uint16_t value)
    void store32 "samelog_store32"(uint8_t *p, uint32_t value)
    void store64 "samelog_store64"(uint8_t *p, uint64_t value)
    int varint_size "samelog_varint_size"(int64_t value)
    uint8_t *put_varint "samelog_put_varint"(uint8_t *p, int64_t value)
    const uint8_t *get_varint "samelog_get_varint"(const uint8_t *p, const uint8_t *end, int bits, int64_t *value)

HEADER_BYTES = 61
MAX_BATCH_BYTES_DEFAULT = 1024 * 1024 + 64 * 1024
MAX_RECORD_BYTES = 1 << 30

cdef enum:
    HEADER = 61  # bytes
    PREFIX = 12  # bytes that the field batchLength does not count
    CRC_FROM = 21  # the CRC covers all bytes from here on
    RECORD_LIMIT = 1 << 30  # so that no length of a batch ever passes 31 bits
    RECORD_MINIMUM = 7  # bytes of the smallest record: seven varints and bytes
    CODEC_BITS = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    RESERVED_BITS = 0xFF80
    RELEASE_FROM = 65536  # bytes of work that pay for releasing the GIL

cdef enum Fault:
    FINE = 0
    SHORT
    BAD_MAGIC
    BAD_LENGTH
    TOO_LONG
    BAD_COUNT
    BAD_ATTRIBUTES
    BAD_CODEC
    BAD_CRC
    RECORD_COUNT
    RECORD_LENGTH
    RECORD_VARINT
    RECORD_FIELD
    RECORD_OFFSET
    RECORD_HEADERS
    RECORD_SURPLUS
    OUT_OF_MEMORY

cdef dict REASONS = {
    SHORT: "it is cut off",
    BAD_MAGIC: "its magic byte is not 2",
    BAD_LENGTH: "its length is too small for a header",
    TOO_LONG: "it is longer than allowed",
    BAD_COUNT: "its number of records does not match its last offset delta",
    BAD_ATTRIBUTES: "reserved attribute bits are set",
    BAD_CODEC: "its codec is unknown",
    BAD_CRC: "its CRC does not match",
    RECORD_COUNT: "it claims more records than it has room for",
    RECORD_LENGTH: "the record's length is outside the batch",
    RECORD_VARINT: "a number is cut off or too long",
    RECORD_FIELD: "a field is negative or longer than its record",
    RECORD_OFFSET: "the record's offset delta does not follow the one before",
    RECORD_HEADERS: "its headers are cut off",
    RECORD_SURPLUS: "there are bytes behind the last field",
}

cdef struct Header:
    int64_t base_offset
    int64_t size  # bytes of the whole batch
    int32_t leader_epoch
    uint32_t crc
    uint32_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t records


cdef Fault read_header(const uint8_t *data, int64_t available, int64_t max_bytes, Header *header) noexcept nogil:
    """Read and check the header at `data`; SHORT if the batch is not whole, after checking all that is there."""
    if available < PREFIX:
        return SHORT
    header.size = PREFIX + <int64_t><int32_t>load32(data + 8)
    if header.size < HEADER:
        return BAD_LENGTH
    if header.size > max_bytes:
        return TOO_LONG
    if available > 16 and data[16] != 2:
        return BAD_MAGIC
    if available < HEADER:
        return SHORT
    header.base_offset = <int64_t>load64(data)
    header.leader_epoch = <int32_t>load32(data + 12)
    header.crc = load32(data + 17)
    header.attributes = load32(data + 19) & 0xFFFF
    header.last_offset_delta = <int32_t>load32(data + 23)
    header.base_timestamp = <int64_t>load64(data + 27)
    header.max_timestamp = <int64_t>load64(data + 35)
    header.producer_id = <int64_t>load64(data + 43)
    header.producer_epoch = <int16_t>(load32(data + 49) & 0xFFFF)
    header.base_sequence = <int32_t>load32(data + 53)
    header.records = <int32_t>load32(data + 57)
    if header.attributes & RESERVED_BITS:
        return BAD_ATTRIBUTES
    if header.attributes & CODEC_BITS > 4:
        return BAD_CODEC
    if header.records < 0 or header.last_offset_delta < 0 or header.records - 1 > header.last_offset_delta:
        return BAD_COUNT
    return FINE if header.size <= available else SHORT


cdef inline int64_t span_of(const Header *header) noexcept nogil:
    """The offsets that a batch takes: one for each record, but where compaction dropped some."""
    return <int64_t>header.last_offset_delta + 1


cdef inline bint is_sparse(const Header *header) noexcept nogil:
    return header.records != span_of(header)


cdef inline bint crc_matches(const uint8_t *data, const Header *header) noexcept nogil:
    return crc32c_update(0, data + CRC_FROM, <size_t>(header.size - CRC_FROM)) == header.crc


cdef int fail(int64_t position, Fault fault, int64_t record=-1) except -1:
    """Raise the error that a fault in the batch at `position` stands for."""
    if fault == OUT_OF_MEMORY:
        raise MemoryError
    reason = REASONS[fault] if record < 0 else f"record {record}: {REASONS[fault]}"
    raise CorruptBatch(position, reason)


cdef int check_range(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size) except -1:
    if not 0 <= start <= stop <= size:
        raise ValueError(f"bytes {start} to {stop} are not inside a buffer of {size}")
    return 0


# A growing run of bytes. Put nothing into it without `reserve`.
cdef struct Heap:
    uint8_t *data
    size_t used
    size_t capacity


cdef Fault reserve(Heap *heap, size_t more) noexcept nogil:
    """Make room for `more` bytes behind those used."""
    cdef size_t wanted = heap.used + more
    cdef uint8_t *data
    if wanted < more:
        return OUT_OF_MEMORY
    if wanted <= heap.capacity:
        return FINE
    if wanted < 2 * heap.capacity:
        wanted = 2 * heap.capacity
    if wanted < 64:
        wanted = 64
    data = <uint8_t *>realloc(heap.data, wanted)
    if data == NULL:
        return OUT_OF_MEMORY
    heap.data = data
    heap.capacity = wanted
    return FINE


cdef void release(Heap *heap) noexcept nogil:
    free(heap.data)
    memset(heap, 0, sizeof(Heap))


def crc32c(data not None, uint32_t value=0) -> int:
    """Return the CRC-32C of any buffer, continuing from `value`, the CRC of the bytes before it."""
    cdef Py_buffer view
    cdef uint32_t result = value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len >= RELEASE_FROM:
            with nogil:
                result = crc32c_update(result, <const uint8_t *>view.buf, <size_t>view.len)
        else:
            result = crc32c_update(result, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return result


def crc32c_portable(data not None, uint32_t value=0) -> int:
    """Return what `crc32c` does where the processor has no instruction for it."""
    cdef Py_buffer view
    cdef uint32_t state
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    state = crc32c_tables(~value, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return ~state
