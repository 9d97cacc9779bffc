# Records as the buffers of Arrow arrays (https://arrow.apache.org/docs/format/Columnar.html).

cdef uint64_t NOTHING = 0


@cython.final
cdef class Block:
    """Bytes made by a kernel, lent read-only through the buffer protocol; they live as long as somebody holds them."""

    cdef Heap heap

    def __dealloc__(self):
        release(&self.heap)

    def __len__(self):
        return self.heap.used

    def __getbuffer__(self, Py_buffer *view, int flags):
        data = self.heap.data if self.heap.data != NULL else <uint8_t *>&NOTHING  # some readers reject a null pointer
        PyBuffer_FillInfo(view, self, data, <Py_ssize_t>self.heap.used, 1, flags)


# A column of nullable byte strings being filled.
cdef struct Strings:
    Heap validity  # a bit per row: not null
    Heap offsets  # an int32 before each row and one behind the last
    Heap data
    int64_t rows
    int64_t nulls

cdef struct Table:
    Heap offsets  # int64
    Heap timestamps  # int64, ms
    Heap timestamp_types  # int32
    Heap header_offsets  # int32, counted in headers
    Strings keys
    Strings values
    Strings header_keys  # never null
    Strings header_values
    int64_t rows


@cython.final
cdef class Strand:
    """The buffers of an Arrow binary or string array.

    Attributes:
        rows, nulls: how many there are.
        validity: bit per row, least significant first: not null.
        offsets: int32 per row and one more: where its bytes begin in `data`.
        data: the bytes of all rows.
    """

    cdef readonly int64_t rows
    cdef readonly int64_t nulls
    cdef readonly Block validity
    cdef readonly Block offsets
    cdef readonly Block data


@cython.final
cdef class Columns:
    """The records of some batches, as buffers of Arrow arrays in the host's byte order.

    Attributes:
        end: position behind the last batch taken.
        rows: how many records there are.
        offsets, timestamps: int64 per record; timestamps in ms.
        timestamp_types: int32 per record: 0 CreateTime, 1 LogAppendTime.
        keys, values: a row per record.
        header_offsets: int32 per record and one more: its first row in header_keys and header_values.
        header_keys, header_values: a row per header; the keys are UTF-8 and not null.
    """

    cdef readonly int64_t end
    cdef readonly int64_t rows
    cdef readonly Block offsets
    cdef readonly Block timestamps
    cdef readonly Block timestamp_types
    cdef readonly Strand keys
    cdef readonly Strand values
    cdef readonly Block header_offsets
    cdef readonly Strand header_keys
    cdef readonly Strand header_values


cdef Block own(Heap *heap):
    """Move the bytes of a heap into an object that owns them."""
    cdef Block block = Block.__new__(Block)
    block.heap = heap[0]
    memset(heap, 0, sizeof(Heap))
    return block


cdef Strand own_strings(Strings *strings):
    cdef Strand strand = Strand.__new__(Strand)
    strand.rows = strings.rows
    strand.nulls = strings.nulls
    strand.validity = own(&strings.validity)
    strand.offsets = own(&strings.offsets)
    strand.data = own(&strings.data)
    return strand


cdef void release_strings(Strings *strings) noexcept nogil:
    release(&strings.validity)
    release(&strings.offsets)
    release(&strings.data)


cdef void release_table(Table *table) noexcept nogil:
    release(&table.offsets)
    release(&table.timestamps)
    release(&table.timestamp_types)
    release(&table.header_offsets)
    release_strings(&table.keys)
    release_strings(&table.values)
    release_strings(&table.header_keys)
    release_strings(&table.header_values)


cdef inline void put32(Heap *heap, int64_t value) noexcept nogil:
    """Add a number for which there is room."""
    cdef int32_t narrow = <int32_t>value
    memcpy(heap.data + heap.used, &narrow, 4)
    heap.used += 4


cdef inline void put64(Heap *heap, int64_t value) noexcept nogil:
    memcpy(heap.data + heap.used, &value, 8)
    heap.used += 8


cdef Fault reserve_rows(Strings *strings, int64_t rows) noexcept nogil:
    """Make room for so many rows more, but for their bytes."""
    if reserve(&strings.validity, <size_t>rows // 8 + 1) != FINE:
        return OUT_OF_MEMORY
    return reserve(&strings.offsets, 4 * <size_t>rows)


cdef inline Fault put_string(Strings *strings, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Add a row for which there is room; a negative size is null."""
    if strings.rows % 8 == 0:
        strings.validity.data[strings.validity.used] = 0
        strings.validity.used += 1
    if size < 0:
        strings.nulls += 1
    else:
        strings.validity.data[strings.rows // 8] |= <uint8_t>(1 << (strings.rows % 8))
        if size > 0:
            if strings.data.used + <size_t>size > strings.data.capacity and reserve(&strings.data, <size_t>size) != FINE:
                return OUT_OF_MEMORY
            if strings.data.used + <size_t>size > <size_t>INT32_MAX:
                return TOO_LONG
            memcpy(strings.data.data + strings.data.used, data, <size_t>size)
            strings.data.used += <size_t>size
    strings.rows += 1
    put32(&strings.offsets, <int64_t>strings.data.used)
    return FINE


cdef Fault push_string(Strings *strings, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Make room for a row, and add it."""
    if reserve_rows(strings, 1) != FINE:
        return OUT_OF_MEMORY
    return put_string(strings, data, size)


cdef inline bint is_ascii(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef Py_ssize_t i
    for i in range(size):
        seen |= data[i]
    return seen < 128


cdef Fault push_text(Strings *strings, const uint8_t *data, Py_ssize_t size) noexcept with gil:
    """Add a header key that may not be valid UTF-8, as a `Record` would show it."""
    try:
        text = PyUnicode_DecodeUTF8(<const char *>data, size, b"replace").encode()
    except MemoryError:
        return OUT_OF_MEMORY
    return push_string(strings, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef Fault push_headers(Table *table, const Parsed *record) noexcept nogil:
    cdef const uint8_t *at = record.first_header
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef Py_ssize_t key_size, value_size
    cdef Fault fault = FINE
    cdef int64_t i
    for i in range(record.header_count):
        at = get_header(at, record.end, &key, &key_size, &value, &value_size, &fault)
        if at == NULL:
            return fault
        if is_ascii(key, key_size):
            fault = push_string(&table.header_keys, key, key_size)
        else:
            fault = push_text(&table.header_keys, key, key_size)
        if fault == FINE:
            fault = push_string(&table.header_values, value, value_size)
        if fault != FINE:
            return fault
    return FINE if at == record.end else RECORD_SURPLUS


cdef Fault reserve_records(Table *table, int64_t records) noexcept nogil:
    """Make room for so many records more, but for their keys, values and headers."""
    cdef size_t rows = <size_t>records
    if reserve_rows(&table.keys, records) != FINE or reserve_rows(&table.values, records) != FINE:
        return OUT_OF_MEMORY
    if reserve(&table.offsets, 8 * rows) != FINE or reserve(&table.timestamps, 8 * rows) != FINE:
        return OUT_OF_MEMORY
    if reserve(&table.timestamp_types, 4 * rows) != FINE:
        return OUT_OF_MEMORY
    return reserve(&table.header_offsets, 4 * rows)


cdef Fault reserve_ahead(Table *table, const uint8_t *at, const uint8_t *end, int64_t limit) noexcept nogil:
    """Make room for what the headers of uncompressed batches say, so that nothing is moved while the table grows."""
    cdef Header header
    cdef int64_t records = 0, size = 0
    while at < end and size < limit and read_header(at, end - at, INT32_MAX, &header) == FINE:
        if not header.attributes & (CONTROL | CODEC_BITS) and header.records <= header.size // RECORD_MINIMUM:
            records += header.records
            size += header.size
        at += header.size
    if reserve(&table.values.data, <size_t>size) != FINE:
        return OUT_OF_MEMORY
    return reserve_records(table, records)


cdef Fault push_records(
    Table *table, const uint8_t *at, const uint8_t *end, const Header *header, int64_t *failed,
) noexcept nogil:
    """Add the records in the (decompressed) bytes from `at` to `end`; `failed` is the bad one, or -1."""
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i
    failed[0] = -1
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    if reserve_records(table, header.records) != FINE:
        return OUT_OF_MEMORY
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault == FINE and parsed.header_count > 0:
            fault = push_headers(table, &parsed)
        if fault == FINE:
            fault = put_string(&table.keys, parsed.key, parsed.key_size)
        if fault == FINE:
            fault = put_string(&table.values, parsed.value, parsed.value_size)
        if fault != FINE:
            failed[0] = i
            return fault
        put64(&table.timestamps, timestamp_of(header, &parsed))
        put32(&table.header_offsets, table.header_keys.rows)
        put64(&table.offsets, <int64_t>(<uint64_t>header.base_offset + <uint64_t>parsed.offset_delta))
    for i in range(header.records):
        put32(&table.timestamp_types, 1 if header.attributes & LOG_APPEND_TIME else 0)
    table.rows += header.records
    return FINE if at == end else RECORD_SURPLUS


cdef int push_batch(Table *table, const uint8_t *at, const uint8_t *end, const Header *header, int64_t position) except -1:
    cdef Fault fault
    cdef int64_t failed
    if end - at >= RELEASE_FROM:
        with nogil:
            fault = push_records(table, at, end, header, &failed)
    else:
        fault = push_records(table, at, end, header, &failed)
    if fault != FINE:
        fail(position, fault, failed)
    return 0


cdef Fault begin_strings(Strings *strings) noexcept nogil:
    if reserve(&strings.offsets, 4) != FINE:
        return OUT_OF_MEMORY
    put32(&strings.offsets, 0)
    return FINE


cdef Fault begin_table(Table *table) noexcept nogil:
    memset(table, 0, sizeof(Table))
    if reserve(&table.header_offsets, 4) != FINE:
        return OUT_OF_MEMORY
    put32(&table.header_offsets, 0)
    if begin_strings(&table.keys) != FINE or begin_strings(&table.values) != FINE:
        return OUT_OF_MEMORY
    if begin_strings(&table.header_keys) != FINE:
        return OUT_OF_MEMORY
    return begin_strings(&table.header_values)


cdef Columns own_table(Table *table, int64_t end):
    cdef Columns columns = Columns.__new__(Columns)
    columns.end = end
    columns.rows = table.rows
    columns.offsets = own(&table.offsets)
    columns.timestamps = own(&table.timestamps)
    columns.timestamp_types = own(&table.timestamp_types)
    columns.keys = own_strings(&table.keys)
    columns.values = own_strings(&table.values)
    columns.header_offsets = own(&table.header_offsets)
    columns.header_keys = own_strings(&table.header_keys)
    columns.header_values = own_strings(&table.header_values)
    return columns


def decode_columns(
    data not None, Py_ssize_t start, Py_ssize_t stop, codec_decompress, *, int64_t max_bytes=RECORD_LIMIT,
    bint verify_crc=True,
) -> Columns:
    """Return the records of the batches in `data[start:stop]` as the buffers of Arrow arrays.

    Takes whole batches until their records, decompressed, pass `max_bytes`, but at least one; go on from `end` of the
    result. Skips control batches; verifies CRCs, unless whoever calls has just done so; calls
    `codec_decompress(codec, blob)` for compressed batches.

    Raises:
        CorruptBatch: a batch or a record in it is invalid, or the data stops inside a batch.
        ValueError: start and stop are not inside the data.
        Whatever `codec_decompress` raises.
    """
    cdef Py_buffer view, plain
    cdef const uint8_t *base
    cdef Header header
    cdef Table table
    cdef int64_t taken = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        base = <const uint8_t *>view.buf
        try:
            if begin_table(&table) != FINE or reserve_ahead(&table, base + start, base + stop, max_bytes) != FINE:
                raise MemoryError
            while start < stop and taken < max_bytes:
                open_batch(base, start, stop, &header, verify_crc)
                if header.attributes & CONTROL:
                    pass
                elif header.attributes & CODEC_BITS:
                    unpacked = unpack(base + start, &header, codec_decompress)
                    PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
                    try:
                        taken += plain.len
                        push_batch(
                            &table, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header, start
                        )
                    finally:
                        PyBuffer_Release(&plain)
                else:
                    taken += header.size
                    push_batch(&table, base + start + HEADER, base + start + header.size, &header, start)
                start += header.size
            return own_table(&table, start)
        finally:
            release_table(&table)
    finally:
        PyBuffer_Release(&view)
