# Kernels that look at the records inside batches and keep none: checking them, finding a time.

cdef Fault walk_records(
    const uint8_t *at, const uint8_t *end, const Header *header, int64_t *failed, int64_t *keyless,
) noexcept nogil:
    """Look at every record of a batch, and keep nothing; `keyless` counts those without a key."""
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i
    failed[0] = -1
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault == FINE and parsed.header_count > 0:
            fault = check_headers(&parsed)
        if fault != FINE:
            failed[0] = i
            return fault
        keyless[0] += parsed.key_size < 0
    return FINE if at == end else RECORD_SURPLUS


cdef Fault look_at_records(
    const uint8_t *at, const uint8_t *end, const Header *header, int64_t *failed, int64_t *keyless,
) noexcept:
    """The same, without the GIL where that pays: a thread may look at many without holding up an event loop."""
    cdef Fault fault
    if end - at < RELEASE_FROM:
        return walk_records(at, end, header, failed, keyless)
    with nogil:
        fault = walk_records(at, end, header, failed, keyless)
    return fault


def check_records(data not None, codec_decompress, *, bint takes_sparse=False) -> int:
    """Check that the records of all batches in `data` can be decoded: what `decode_records` would raise, at a fraction of
    its price. CRCs are not verified. A batch that lacks records is invalid here, as only compaction makes such, unless
    `takes_sparse`. Returns how many records have no key.

    Raises:
        CorruptBatch: a batch or a record in it is invalid, or the data stops inside a batch.
        Whatever `codec_decompress` raises.
    """
    cdef Py_buffer view, plain
    cdef const uint8_t *base
    cdef Header header
    cdef Fault fault
    cdef int64_t start = 0, failed, keyless = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t *>view.buf
        while start < view.len:
            fault = read_header(base + start, view.len - start, INT32_MAX, &header)
            failed = -1
            if fault == FINE and not takes_sparse and (header.records == 0 or is_sparse(&header)):
                fault = BAD_COUNT
            if fault == FINE and header.attributes & CODEC_BITS:
                unpacked = unpack(base + start, &header, codec_decompress)
                PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
                fault = look_at_records(<const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header, &failed, &keyless)
                PyBuffer_Release(&plain)
            elif fault == FINE:
                fault = look_at_records(base + start + HEADER, base + start + header.size, &header, &failed, &keyless)
            if fault != FINE:
                fail(start, fault, failed)
            start += header.size
    finally:
        PyBuffer_Release(&view)
    return keyless


cdef Fault search_time(
    const uint8_t *at, const uint8_t *end, const Header *header, int64_t since, int64_t first, int64_t *place,
) noexcept nogil:
    """Find the first record that is not older than `since`, from offset `first` on: `place` gets its offset delta (-1:
    there is none) and its timestamp; of a fault, the record's index.
    """
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i
    place[0] = -1
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault != FINE:
            place[0] = i
            return fault
        if header.base_offset + parsed.offset_delta >= first and timestamp_of(header, &parsed) >= since:
            place[0] = parsed.offset_delta
            place[1] = timestamp_of(header, &parsed)
            return FINE
    return FINE


def find_time(batch not None, int64_t since, int64_t first, codec_decompress):
    """(offset, timestamp) of the first record of a batch, from offset `first` on, that is not older than `since`; None if
    there is none, and in control batches. Does not hold the GIL. Raises as `decode_records`.
    """
    cdef Py_buffer view, plain
    cdef const uint8_t *base
    cdef Header header
    cdef Fault fault
    cdef int64_t place[2]
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t *>view.buf
        open_batch(base, 0, view.len, &header)
        if header.attributes & CONTROL:
            return None
        if header.attributes & CODEC_BITS:
            unpacked = unpack(base, &header, codec_decompress)
            PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
            with nogil:
                fault = search_time(
                    <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header, since, first, place
                )
            PyBuffer_Release(&plain)
        else:
            with nogil:
                fault = search_time(base + HEADER, base + header.size, &header, since, first, place)
        if fault != FINE:
            fail(0, fault, place[0])
        return None if place[0] < 0 else (header.base_offset + place[0], place[1])
    finally:
        PyBuffer_Release(&view)
