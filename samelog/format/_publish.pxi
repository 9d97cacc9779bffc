# What a publisher does for every record besides building it: choose the partition by the key, and write.

cdef extern from "<errno.h>" nogil:
    int errno
    int EINTR

cdef extern from "<string.h>" nogil:
    const char *strerror(int number)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pwrite(int descriptor, const void *data, size_t size, int64_t position)

cdef enum:
    WRITE_HOLDING = 32 * 1024  # bytes: a write of up to this many keeps the GIL


def murmur2(data) -> int:
    """Return the 32-bit murmur2 hash of any buffer, unsigned, as Kafka's producers hash keys.

    Source: Apache Kafka, `org.apache.kafka.common.utils.Utils.murmur2`.
    """
    cdef Py_buffer view
    cdef uint32_t value
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = murmur2_of(<const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return value


cdef uint32_t murmur2_of(const uint8_t *data, size_t size) noexcept nogil:
    cdef uint32_t word, value = 0x9747B28Cu ^ <uint32_t>size
    cdef size_t i, whole = size - size % 4
    for i in range(0, whole, 4):
        word = data[i] | <uint32_t>data[i + 1] << 8 | <uint32_t>data[i + 2] << 16 | <uint32_t>data[i + 3] << 24
        word *= 0x5BD1E995u
        value = value * 0x5BD1E995u ^ (word ^ word >> 24) * 0x5BD1E995u
    if whole < size:
        word = 0
        for i in range(whole, size):
            word |= <uint32_t>data[i] << 8 * (i - whole)
        value = (value ^ word) * 0x5BD1E995u
    value = (value ^ value >> 13) * 0x5BD1E995u
    return value ^ value >> 15


def write_at(int descriptor, data not None, int64_t position) -> None:
    """Write all of any buffer at a position of a file.

    A small write keeps the GIL: it takes a microsecond, and a thread that gives up the GIL to a busy one may get it
    back only after the switch interval, 5 ms.

    Raises:
        OSError: a part may have been written.
    """
    cdef Py_buffer view
    cdef int error
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > WRITE_HOLDING:
            with nogil:
                error = write_whole(descriptor, <const uint8_t *>view.buf, <size_t>view.len, position)
        else:
            error = write_whole(descriptor, <const uint8_t *>view.buf, <size_t>view.len, position)
    finally:
        PyBuffer_Release(&view)
    if error != 0:
        raise OSError(error, strerror(error).decode())


cdef int write_whole(int descriptor, const uint8_t *data, size_t size, int64_t position) noexcept nogil:
    """Write everything; returns 0 or the error number."""
    cdef Py_ssize_t done
    while size > 0:
        done = pwrite(descriptor, data, size, position)
        if done < 0 and errno == EINTR:
            continue
        if done < 0:
            return errno
        data += done
        position += done
        size -= <size_t>done
    return 0


cdef uint8_t written_record[WRITE_HOLDING]  # only touched while the GIL is held, from filling to writing


def write_record(
    int descriptor, int64_t position, int64_t limit, value, key, headers, int64_t timestamp, int64_t max_record_bytes,
) -> int:
    """Build a batch of one record, as `build_record` does, and write it at a position of a file.

    Returns the position behind it; or -1, with nothing written, if that would pass `limit`, or the batch is no small
    write (see `write_at`).

    Raises:
        RecordTooLarge, TypeError: nothing was written.
        OSError: a part may have been written.
    """
    cdef Item item
    cdef Heap heap
    cdef Producer producer
    cdef bytes key_bytes = as_bytes(key), value_bytes = as_bytes(value)
    cdef int64_t size
    cdef int error
    memset(&heap, 0, sizeof(Heap))
    check_record_limit(max_record_bytes)
    try:
        take_item(&item, key_bytes, value_bytes, headers, &heap, 0, max_record_bytes)
        item.offset_delta = 0
        item.timestamp_delta = 0
        item.body_size = <int32_t>body_size(&item, 0, 0)
        size = HEADER + varint_size(item.body_size) + item.body_size
        if size > WRITE_HOLDING or position + size > limit:
            return -1
        put_record(written_record + HEADER, &item, heap.data)
    finally:
        release(&heap)
    producer.id = -1
    producer.epoch = -1
    producer.base_sequence = -1
    finish_batch(written_record, size, 0, 1, timestamp, timestamp, &producer)
    error = write_whole(descriptor, written_record, <size_t>size, position)
    if error != 0:
        raise OSError(error, strerror(error).decode())
    return position + size
