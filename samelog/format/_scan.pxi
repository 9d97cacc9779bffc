# Kernels that read or patch batch headers and never look at a record.

cdef struct Totals:
    int64_t end
    int64_t batches
    int64_t records
    int64_t last_start
    uint32_t last_crc
    int64_t max_timestamp
    uint64_t digest
    uint32_t attributes
    bint has_producer
    bint is_sparse
    Fault fault


@cython.final
cdef class Scan:
    """What `scan` found; read only.

    Attributes:
        end: position just behind the last whole valid batch (`start` if there is none).
        batches, records: how many of each there are before `end`; those that compaction dropped count as records.
        last_start: position of the last valid batch, -1 if there is none.
        last_crc: the CRC field of the last valid batch, 0 if there is none.
        max_timestamp: the highest maxTimestamp, in ms; -1 if there is no batch.
        digest: unsigned 64 bits over the batches: h = (h * 0x9E3779B97F4A7C15 + CRC field + 1) mod 2^64, from 0.
        attributes: the attributes of all batches, ORed.
        has_producer: some batch has a producer id that is not negative.
        is_sparse: some batch lacks records that compaction dropped.
        error: why the batch at `end` is invalid, else None.
        short: the data stops inside the batch at `end`, of which nothing so far is invalid.
    """

    cdef Totals totals

    @property
    def end(self) -> int:
        return self.totals.end

    @property
    def batches(self) -> int:
        return self.totals.batches

    @property
    def records(self) -> int:
        return self.totals.records

    @property
    def last_start(self) -> int:
        return self.totals.last_start

    @property
    def last_crc(self) -> int:
        return self.totals.last_crc

    @property
    def max_timestamp(self) -> int:
        return self.totals.max_timestamp

    @property
    def digest(self) -> int:
        return self.totals.digest

    @property
    def attributes(self) -> int:
        return self.totals.attributes

    @property
    def has_producer(self) -> bool:
        return self.totals.has_producer

    @property
    def is_sparse(self) -> bool:
        return self.totals.is_sparse

    @property
    def error(self) -> str | None:
        fault = self.totals.fault
        return None if fault == FINE or fault == SHORT else REASONS[fault]

    @property
    def short(self) -> bool:
        return self.totals.fault == SHORT

    def __repr__(self) -> str:
        return f"Scan(end={self.end}, batches={self.batches}, records={self.records}, error={self.error!r}, short={self.short})"


cdef void scan_batches(
    const uint8_t *data, int64_t start, int64_t stop, int64_t max_batch_bytes, int64_t max_batches, int64_t max_bytes,
    bint verify_crc, Totals *totals,
) noexcept nogil:
    cdef Header header
    cdef const uint8_t *batch
    while totals.end < stop and (max_batches < 0 or totals.batches < max_batches):
        batch = data + totals.end
        totals.fault = read_header(batch, stop - totals.end, max_batch_bytes, &header)
        if totals.fault == FINE and max_bytes >= 0 and totals.batches > 0:
            if totals.end + header.size - start > max_bytes:
                return
        if totals.fault == FINE and verify_crc and not crc_matches(batch, &header):
            totals.fault = BAD_CRC
        if totals.fault != FINE:
            return
        totals.last_start = totals.end
        totals.last_crc = header.crc
        totals.end += header.size
        if totals.batches == 0 or header.max_timestamp > totals.max_timestamp:
            totals.max_timestamp = header.max_timestamp
        totals.batches += 1
        totals.records += span_of(&header)
        totals.is_sparse |= is_sparse(&header)
        totals.digest = totals.digest * <uint64_t>0x9E3779B97F4A7C15 + header.crc + 1
        totals.attributes |= header.attributes
        totals.has_producer |= header.producer_id >= 0


def scan(
    data not None, *, Py_ssize_t start=0, Py_ssize_t stop=-1, bint verify_crc=True,
    int64_t max_batch_bytes=1114112, int64_t max_batches=-1, int64_t max_bytes=-1,
) -> Scan:
    """Walk over the record batches in `data[start:stop]` (-1: to the end of the data), and stop at the first bad one.

    Checks, per batch: magic 2; a length of at least a header and at most `max_batch_bytes` in all; a number of
    records that fits the last offset delta; reserved attribute bits; codec; CRC. Records are not looked at.

    Stops, without an error, before `max_batches` is passed, and before `max_bytes` is, but never before the first
    batch for `max_bytes`; -1 for no limit.

    Raises:
        ValueError: start and stop are not inside the data.
    """
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef Scan result = Scan.__new__(Scan)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if stop == -1:
            stop = view.len
        check_range(start, stop, view.len)
        base = <const uint8_t *>view.buf
        result.totals.end = start
        result.totals.last_start = -1
        result.totals.max_timestamp = -1
        if stop - start >= RELEASE_FROM:
            with nogil:
                scan_batches(base, start, stop, max_batch_bytes, max_batches, max_bytes, verify_crc, &result.totals)
        else:
            scan_batches(base, start, stop, max_batch_bytes, max_batches, max_bytes, verify_crc, &result.totals)
    finally:
        PyBuffer_Release(&view)
    return result


def find_batch(data not None, int64_t offset) -> int:
    """Where in `data`, which begins with a batch, the first batch begins whose last offset is at least `offset`; -1 if
    that is none of the whole batches. Headers are checked, the CRC is not.
    """
    cdef Py_buffer view
    cdef Header header
    cdef int64_t at = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while read_header(<const uint8_t *>view.buf + at, view.len - at, INT32_MAX, &header) == FINE:
            if header.base_offset + header.last_offset_delta >= offset:
                return at
            at += header.size
    finally:
        PyBuffer_Release(&view)
    return -1


def batch_headers(data not None, Py_ssize_t start, Py_ssize_t stop) -> list:
    """Return, for each batch of `data[start:stop]`: (start, size, offsets it takes, attributes, base_timestamp, max_timestamp,
    producer_id, producer_epoch, base_sequence, crc). The CRC is not verified.

    Raises:
        CorruptBatch: a header is invalid, or the data stops inside a batch.
        ValueError: start and stop are not inside the data.
    """
    cdef Py_buffer view
    cdef Header header
    cdef Fault fault
    cdef list result = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        while start < stop:
            fault = read_header(<const uint8_t *>view.buf + start, stop - start, INT32_MAX, &header)
            if fault != FINE:
                fail(start, fault)
            result.append((
                start, header.size, span_of(&header), header.attributes, header.base_timestamp, header.max_timestamp,
                header.producer_id, header.producer_epoch, header.base_sequence, header.crc,
            ))
            start += header.size
    finally:
        PyBuffer_Release(&view)
    return result


cdef int64_t count_records(const uint8_t *data, int64_t start, int64_t stop) except -1:
    """Check all headers between start and stop, and return the offsets that they take."""
    cdef Header header
    cdef Fault fault
    cdef int64_t records = 0
    while start < stop:
        fault = read_header(data + start, stop - start, INT32_MAX, &header)
        if fault != FINE:
            fail(start, fault)
        records += span_of(&header)
        start += header.size
    return records


def assign_offsets(
    data not None, Py_ssize_t start, Py_ssize_t stop, int64_t base_offset, int32_t leader_epoch, *,
    int64_t file_position, int64_t bytes_since_index, int64_t index_interval, list points not None,
) -> tuple:
    """Give the batches in the writable buffer `data[start:stop]` dense offsets from `base_offset`, and an epoch.

    Rewrites baseOffset and partitionLeaderEpoch in place; both lie outside the CRC. `file_position` is where `start`
    will be in the segment file. Returns (next offset, bytes since the last index entry, all attributes, ORed).

    Appends to `points` where Kafka's LogSegment.append would write index entries: before each batch, if more than
    `index_interval` bytes were written since the last entry, (last offset of the batch, its position in the file,
    highest maxTimestamp so far in this call, last offset of the batch that has it).

    Raises:
        CorruptBatch: a header is invalid or the data stops inside a batch; nothing was changed.
        ValueError: start and stop are not inside the data, or the offsets would pass 63 bits; nothing was changed.
        BufferError: the buffer is not writable.
    """
    cdef Py_buffer view
    cdef Header header
    cdef uint8_t *batch
    cdef int64_t at = start, next_offset = base_offset, max_timestamp = -1, max_offset = -1
    cdef uint32_t attributes = 0
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        check_range(start, stop, view.len)
        if base_offset < 0 or count_records(<const uint8_t *>view.buf, start, stop) > INT64_MAX - base_offset:
            raise ValueError(f"there are no offsets from {base_offset} for these records")
        while at < stop:
            batch = <uint8_t *>view.buf + at
            if read_header(batch, stop - at, INT32_MAX, &header) != FINE:
                raise BufferError("the buffer was changed by somebody else")
            store64(batch, <uint64_t>next_offset)
            store32(batch + 12, <uint32_t>leader_epoch)
            next_offset += span_of(&header)
            attributes |= header.attributes
            if at == start or header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
                max_offset = next_offset - 1
            if bytes_since_index > index_interval:
                points.append((next_offset - 1, file_position + at - start, max_timestamp, max_offset))
                bytes_since_index = 0
            bytes_since_index += header.size
            at += header.size
    finally:
        PyBuffer_Release(&view)
    return next_offset, bytes_since_index, attributes


def stamp_append_time(data not None, int64_t append_ms) -> None:
    """Give every batch in the writable buffer the time it was appended at, as a Kafka broker does.

    Sets the LogAppendTime bit and maxTimestamp, which then counts for all records of the batch, and computes the CRC
    anew; the records stay as they are, compressed or not (Kafka's `DefaultRecordBatch.setMaxTimestamp`).

    Raises:
        CorruptBatch: a header is invalid or the data stops inside a batch; batches before it are changed.
        BufferError: the buffer is not writable.
    """
    cdef Py_buffer view
    cdef Header header
    cdef Fault fault
    cdef uint8_t *batch
    cdef int64_t at = 0
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        while at < view.len:
            batch = <uint8_t *>view.buf + at
            fault = read_header(batch, view.len - at, INT32_MAX, &header)
            if fault != FINE:
                fail(at, fault)
            store16(batch + 21, <uint16_t>(header.attributes | LOG_APPEND_TIME))
            store64(batch + 35, <uint64_t>append_ms)
            store32(batch + 17, crc32c_update(0, batch + CRC_FROM, <size_t>(header.size - CRC_FROM)))
            at += header.size
    finally:
        PyBuffer_Release(&view)
