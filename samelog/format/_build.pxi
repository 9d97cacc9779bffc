# Kernels that write record batches.

cdef struct Item:
    const char *key
    Py_ssize_t key_size  # -1: null
    const char *value
    Py_ssize_t value_size  # -1: null
    size_t headers_at  # the encoded header count and headers, in a heap of their own
    size_t headers_size  # 0: none
    int64_t timestamp
    int64_t timestamp_delta
    int32_t offset_delta  # 0: the first of its batch
    int32_t body_size  # bytes behind the record's length field

cdef struct Producer:
    int64_t id
    int16_t epoch
    int32_t base_sequence


cdef inline int64_t field_size(Py_ssize_t size) noexcept nogil:
    return varint_size(size) + (size if size > 0 else 0)


cdef inline int64_t body_size(const Item *item, int64_t timestamp_delta, int64_t offset_delta) noexcept nogil:
    """The bytes of a record behind its length field."""
    return (
        1 + varint_size(timestamp_delta) + varint_size(offset_delta) + field_size(item.key_size)
        + field_size(item.value_size) + (<int64_t>item.headers_size if item.headers_size > 0 else 1)
    )


cdef inline uint8_t *put_field(uint8_t *out, const char *data, Py_ssize_t size) noexcept nogil:
    out = put_varint(out, size)
    if size > 0:
        memcpy(out, data, <size_t>size)
        out += size
    return out


cdef uint8_t *put_record(uint8_t *out, const Item *item, const uint8_t *headers) noexcept nogil:
    out = put_varint(out, item.body_size)
    out[0] = 0
    out = put_varint(out + 1, item.timestamp_delta)
    out = put_varint(out, item.offset_delta)
    out = put_field(out, item.key, item.key_size)
    out = put_field(out, item.value, item.value_size)
    if item.headers_size == 0:
        out[0] = 0
        return out + 1
    memcpy(out, headers + item.headers_at, item.headers_size)
    return out + item.headers_size


cdef void finish_batch(
    uint8_t *batch, int64_t size, uint32_t attributes, int32_t records, int64_t base_timestamp, int64_t max_timestamp,
    const Producer *producer,
) noexcept nogil:
    """Write the header of the batch whose records are already behind it; offset and epoch are left at 0."""
    memset(batch, 0, HEADER)
    store32(batch + 8, <uint32_t>(size - PREFIX))
    batch[16] = 2
    store16(batch + 21, <uint16_t>attributes)
    store32(batch + 23, <uint32_t>(records - 1))
    store64(batch + 27, <uint64_t>base_timestamp)
    store64(batch + 35, <uint64_t>max_timestamp)
    store64(batch + 43, <uint64_t>producer.id)
    store16(batch + 51, <uint16_t>producer.epoch)
    store32(batch + 53, <uint32_t>producer.base_sequence)
    store32(batch + 57, <uint32_t>records)
    store32(batch + 17, crc32c_update(0, batch + CRC_FROM, <size_t>(size - CRC_FROM)))


cdef bytes as_bytes(object data):
    if data is not None and not PyBytes_CheckExact(data):
        return bytes(memoryview(data))
    return data


cdef int put_heap_field(Heap *heap, const char *data, Py_ssize_t size) except -1:
    if reserve(heap, <size_t>(size if size > 0 else 0) + 10) != FINE:
        raise MemoryError
    heap.used = <size_t>(put_field(heap.data + heap.used, data, size) - heap.data)
    return 0


cdef int put_headers(Heap *heap, object headers) except -1:
    """Append the header count and the headers of one record."""
    cdef Py_ssize_t size
    cdef const char *text
    cdef bytes data
    cdef tuple pairs = tuple(headers)
    put_heap_count(heap, len(pairs))
    for key, value in pairs:
        if not isinstance(key, str):
            raise TypeError(f"a header's key is a str, not {type(key).__name__}")
        text = PyUnicode_AsUTF8AndSize(key, &size)
        put_heap_field(heap, text, size)
        data = as_bytes(value)
        if data is None:
            put_heap_field(heap, NULL, -1)
        else:
            put_heap_field(heap, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return 0


cdef int put_heap_count(Heap *heap, Py_ssize_t count) except -1:
    if reserve(heap, 10) != FINE:
        raise MemoryError
    heap.used = <size_t>(put_varint(heap.data + heap.used, count) - heap.data)
    return 0


cdef inline int take_item(
    Item *item, bytes key, bytes value, object headers, Heap *heap, Py_ssize_t index, int64_t limit,
) except -1:
    """Note where a record's parts are, and check its size. The caller keeps key and value alive."""
    item.value = NULL
    item.value_size = -1
    if value is not None:
        item.value = PyBytes_AS_STRING(value)
        item.value_size = PyBytes_GET_SIZE(value)
    return take_rest(item, key, headers, heap, index, limit)


cdef inline int take_rest(
    Item *item, bytes key, object headers, Heap *heap, Py_ssize_t index, int64_t limit,
) except -1:
    """As `take_item`, of a record whose value is noted."""
    cdef int64_t size
    item.key = NULL
    item.key_size = -1
    item.headers_at = heap.used
    if key is not None:
        item.key = PyBytes_AS_STRING(key)
        item.key_size = PyBytes_GET_SIZE(key)
    if headers is not None:
        put_headers(heap, headers)
    item.headers_size = heap.used - item.headers_at
    size = body_size(item, 0, 0)
    size += varint_size(size)
    if size > limit:
        raise RecordTooLarge(index, size, limit)
    return 0


cdef int64_t check_record_limit(int64_t limit) except -1:
    if not 0 < limit <= RECORD_LIMIT:
        raise ValueError(f"max_record_bytes is {limit}; it must be 1 to {RECORD_LIMIT}")
    return limit


def build_record(value, key=None, headers=None, int64_t timestamp=-1, int64_t max_record_bytes=RECORD_LIMIT) -> bytes:
    """Return a batch with one record, as `build_batches` would build it for a single value without a producer."""
    cdef Item item
    cdef Heap heap
    cdef Producer producer
    cdef bytes result, key_bytes = as_bytes(key), value_bytes = as_bytes(value)
    cdef int64_t size
    cdef uint8_t *out
    memset(&heap, 0, sizeof(Heap))
    check_record_limit(max_record_bytes)
    try:
        take_item(&item, key_bytes, value_bytes, headers, &heap, 0, max_record_bytes)
        item.offset_delta = 0
        item.timestamp_delta = 0
        item.body_size = <int32_t>body_size(&item, 0, 0)
        size = HEADER + varint_size(item.body_size) + item.body_size
        result = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t *>PyBytes_AS_STRING(result)
        put_record(out + HEADER, &item, heap.data)
    finally:
        release(&heap)
    producer.id = -1
    producer.epoch = -1
    producer.base_sequence = -1
    finish_batch(out, size, 0, 1, timestamp, timestamp, &producer)
    return result


cdef int64_t plan_batches(Item *items, Py_ssize_t count, int64_t batch_bytes) noexcept nogil:
    """Decide which record begins a batch; fill in deltas and sizes. Returns the bytes of all batches."""
    cdef int64_t total = 0, size = 0, first_timestamp = 0, record
    cdef Py_ssize_t i
    cdef int32_t offset_delta = 0
    cdef Item *item
    for i in range(count):
        item = items + i
        item.timestamp_delta = <int64_t>(<uint64_t>item.timestamp - <uint64_t>first_timestamp)
        record = body_size(item, item.timestamp_delta, offset_delta)
        if i == 0 or size + varint_size(record) + record > batch_bytes:
            total += size
            size = HEADER
            offset_delta = 0
            first_timestamp = item.timestamp
            item.timestamp_delta = 0
            record = body_size(item, 0, 0)
        item.offset_delta = offset_delta
        item.body_size = <int32_t>record
        size += varint_size(record) + record
        offset_delta += 1
    return total + size


cdef void write_batches(
    uint8_t *out, const Item *items, Py_ssize_t count, const uint8_t *headers, Producer producer,
) noexcept nogil:
    cdef uint8_t *batch
    cdef Py_ssize_t i = 0
    cdef int32_t records
    cdef int64_t first_timestamp, max_timestamp
    while i < count:
        batch = out
        out += HEADER
        records = 0
        first_timestamp = max_timestamp = items[i].timestamp
        while i < count and (records == 0 or items[i].offset_delta > 0):
            out = put_record(out, items + i, headers)
            if items[i].timestamp > max_timestamp:
                max_timestamp = items[i].timestamp
            records += 1
            i += 1
        finish_batch(batch, out - batch, 0, records, first_timestamp, max_timestamp, &producer)
        if producer.base_sequence >= 0:
            producer.base_sequence = next_sequence(producer.base_sequence, records)


cdef inline int32_t next_sequence(int32_t sequence, int64_t records) noexcept nogil:
    return <int32_t>((<uint64_t>sequence + <uint64_t>records) & <uint64_t>INT32_MAX)


cdef tuple column(object values, str name, Py_ssize_t count):
    """A snapshot of a list that nothing can change under us; None stays None."""
    if values is None:
        return None
    taken = tuple(values)
    if len(taken) != count:
        raise ValueError(f"{count} values have {len(taken)} {name}")
    return taken


@cython.final
cdef class BytesColumn:
    """Nullable byte strings that lie in the buffers of an Arrow array: a sequence of bytes and None that nothing can
    change, which `build_batches` reads where they are.

    Args:
        validity: a bit per row, or None: no row is null.
        offsets: int64 per row and one more: where its bytes begin in `data`.
        first, count: the rows of it.
    """

    cdef Py_buffer validity_view, offsets_view, data_view
    cdef object validity, offsets, data
    cdef Py_ssize_t first, count

    def __cinit__(self, validity, offsets not None, data not None, Py_ssize_t first, Py_ssize_t count):
        cdef Py_ssize_t behind = first + count
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(offsets, &self.offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &self.data_view, PyBUF_SIMPLE)
        self.validity, self.offsets, self.data = validity, offsets, data
        self.first, self.count = first, count
        if first < 0 or count < 0 or (count > 0 and self.offsets_view.len // 8 <= behind):
            raise ValueError(f"{count} rows from {first} on are not in {self.offsets_view.len} bytes of offsets")
        if validity is not None and self.validity_view.len * 8 < behind:
            raise ValueError(f"{count} rows from {first} on are not in {self.validity_view.len} bytes of validity")

    def __dealloc__(self):
        PyBuffer_Release(&self.validity_view)
        PyBuffer_Release(&self.offsets_view)
        PyBuffer_Release(&self.data_view)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cdef Item item
        cdef Py_ssize_t start, stop, step
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            if step != 1:
                raise ValueError("a slice takes rows that follow each other")
            return BytesColumn(self.validity, self.offsets, self.data, self.first + start, max(0, stop - start))
        start = index
        if not -self.count <= start < self.count:
            raise IndexError(index)
        self.note(&item, start if start >= 0 else start + self.count)
        return None if item.value_size < 0 else PyBytes_FromStringAndSize(item.value, item.value_size)

    cdef int note(self, Item *item, Py_ssize_t index) except -1:
        """Note where a row's bytes are."""
        cdef const uint8_t *validity = <const uint8_t *>self.validity_view.buf
        cdef const int64_t *offsets = <const int64_t *>self.offsets_view.buf
        cdef Py_ssize_t row = self.first + index
        item.value = NULL
        item.value_size = -1
        if self.validity is not None and not validity[row >> 3] >> (row & 7) & 1:
            return 0
        if not 0 <= offsets[row] <= offsets[row + 1] <= self.data_view.len:
            raise ValueError(f"row {index} is not in {self.data_view.len} bytes of data")
        item.value = <const char *>self.data_view.buf + offsets[row]
        item.value_size = <Py_ssize_t>(offsets[row + 1] - offsets[row])
        return 0


cdef int take_items(
    Item *items, object values, tuple keys, tuple headers, object timestamps, Heap *heap, int64_t limit, list kept,
) except -1:
    cdef Py_ssize_t i
    cdef BytesColumn lent = values if isinstance(values, BytesColumn) else None
    cdef tuple listed = None if lent is not None else values
    cdef tuple times = None if isinstance(timestamps, int) else column(timestamps, "timestamps", len(values))
    cdef int64_t timestamp = PyLong_AsLongLong(timestamps) if times is None else 0
    cdef bytes key = None, value
    for i in range(len(values)):
        if lent is not None:
            lent.note(items + i, i)
        else:
            value = as_bytes(listed[i])
            if value is not listed[i]:
                kept.append(value)
        if keys is not None:
            key = as_bytes(keys[i])
            if key is not keys[i]:
                kept.append(key)
        if lent is not None:
            take_rest(items + i, key, None if headers is None else headers[i], heap, i, limit)
        else:
            take_item(items + i, key, value, None if headers is None else headers[i], heap, i, limit)
        items[i].timestamp = timestamp if times is None else PyLong_AsLongLong(times[i])
    return 0


def build_batches(
    values, *, keys=None, headers=None, timestamps, int64_t producer_id=-1, int16_t producer_epoch=-1,
    int32_t base_sequence=-1, int64_t batch_bytes, int64_t max_record_bytes,
) -> bytes:
    """Return one or more uncompressed batches, one behind the other, that hold the records in order.

    Args:
        values, keys: sequences of bytes, other buffers or None (null), or a BytesColumn of values; no keys: all null.
        headers: for each record None or a sequence of (str, bytes or None).
        timestamps: ms, one for all or one each; any 64-bit number.
        base_sequence: of the first record, counting on through all batches modulo 2^31; -1: none.
        batch_bytes: a batch is closed when the next record would make it larger than this, header included;
            every batch takes at least one record.
        max_record_bytes: limit of a record's size, taken as the only one of its batch, without the batch header.

    Base offsets and leader epochs are 0. No values give no bytes.

    Raises:
        RecordTooLarge: nothing was built.
        ValueError: lengths of the sequences differ, or a limit is out of range.
    """
    taken = values if isinstance(values, BytesColumn) else tuple(values)
    cdef Py_ssize_t count = len(taken)
    cdef Item *items
    cdef Heap heap
    cdef Producer producer
    cdef bytes result
    cdef list kept = []
    cdef tuple key_column = column(keys, "keys", count), header_column = column(headers, "header lists", count)
    if count == 0:
        return b""
    check_record_limit(max_record_bytes)
    if batch_bytes > RECORD_LIMIT:
        raise ValueError(f"batch_bytes is {batch_bytes}; it must be at most {RECORD_LIMIT}")
    producer.id = producer_id
    producer.epoch = producer_epoch
    producer.base_sequence = base_sequence
    memset(&heap, 0, sizeof(Heap))
    items = <Item *>malloc(<size_t>count * sizeof(Item))
    if items == NULL:
        raise MemoryError
    try:
        take_items(items, taken, key_column, header_column, timestamps, &heap, max_record_bytes, kept)
        result = PyBytes_FromStringAndSize(NULL, plan_batches(items, count, batch_bytes))
        write_batches(<uint8_t *>PyBytes_AS_STRING(result), items, count, heap.data, producer)
    finally:
        free(items)
        release(&heap)
    return result


@cython.final
cdef class BatchBuilder:
    """Collects records into one uncompressed batch.

    The bytes of `finish` are those of `build_batches` for the same records in one batch.
    """

    cdef Heap heap
    cdef int64_t limit
    cdef int32_t count
    cdef int64_t first_timestamp
    cdef int64_t max_timestamp

    def __cinit__(self, int64_t max_record_bytes=RECORD_LIMIT):
        self.limit = check_record_limit(max_record_bytes)

    def __dealloc__(self):
        release(&self.heap)

    @property
    def records(self) -> int:
        """The records added since the last `finish`."""
        return self.count

    def add(self, value, key=None, headers=None, int64_t timestamp=-1, int64_t batch_bytes=RECORD_LIMIT) -> int:
        """Add a record; return the bytes of the batch so far, header included.

        Returns -1, with nothing added, if the batch has records and this one would make it larger than `batch_bytes`.

        Raises:
            RecordTooLarge: the record is larger than `max_record_bytes` (see `build_batches`), or the batch would
                pass 1 GiB; its `index` is the record's place in the batch. Nothing was added.
        """
        cdef Heap headers_heap
        cdef bytes key_bytes = as_bytes(key), value_bytes = as_bytes(value)
        cdef Item item
        memset(&headers_heap, 0, sizeof(Heap))
        try:
            take_item(&item, key_bytes, value_bytes, headers, &headers_heap, self.count, self.limit)
            item.timestamp = timestamp
            if not self.append(&item, headers_heap.data, batch_bytes):
                return -1
        finally:
            release(&headers_heap)
        return self.heap.used

    cdef bint append(self, Item *item, const uint8_t *headers, int64_t batch_bytes) except -1:
        cdef size_t used = self.heap.used if self.count > 0 else HEADER
        cdef int64_t first = self.first_timestamp if self.count > 0 else item.timestamp
        cdef int64_t body
        item.timestamp_delta = <int64_t>(<uint64_t>item.timestamp - <uint64_t>first)
        item.offset_delta = self.count
        body = body_size(item, item.timestamp_delta, item.offset_delta)
        if self.count > 0 and <int64_t>used + varint_size(body) + body > batch_bytes:
            return False
        if <int64_t>used + body + 5 > RECORD_LIMIT:
            raise RecordTooLarge(self.count, body, RECORD_LIMIT)
        item.body_size = <int32_t>body
        self.heap.used = used
        if reserve(&self.heap, <size_t>body + 5) != FINE:
            raise MemoryError
        self.heap.used = <size_t>(put_record(self.heap.data + used, item, headers) - self.heap.data)
        if self.count == 0 or item.timestamp > self.max_timestamp:
            self.max_timestamp = item.timestamp
        self.first_timestamp = first
        self.count += 1
        return True

    def finish(self, *, int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1) -> bytes:
        """Return the batch and begin an empty one; no records give no bytes."""
        cdef Producer producer
        cdef bytes result
        if self.count == 0:
            return b""
        producer.id = producer_id
        producer.epoch = producer_epoch
        producer.base_sequence = base_sequence
        finish_batch(
            self.heap.data, <int64_t>self.heap.used, 0, self.count, self.first_timestamp, self.max_timestamp, &producer
        )
        result = PyBytes_FromStringAndSize(<const char *>self.heap.data, <Py_ssize_t>self.heap.used)
        self.heap.used = 0
        self.count = 0
        return result
