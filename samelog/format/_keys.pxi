# Kernels of topics whose keys count once: the keys of a run of batches, and what a set of keys is known by.

def keys_of(data not None, Py_ssize_t start, Py_ssize_t stop, codec_decompress) -> list:
    """Return the key of every record of `data[start:stop]`, in order; None where there is none, as in control batches.

    Raises:
        CorruptBatch: a batch or a record is invalid, or the data stops inside a batch. CRCs are not verified.
        Whatever `codec_decompress` raises.
    """
    cdef Py_buffer view, plain
    cdef const uint8_t *base
    cdef Header header
    cdef list found = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        base = <const uint8_t *>view.buf
        while start < stop:
            open_batch(base, start, stop, &header, False)
            if header.attributes & CONTROL or is_sparse(&header):
                found += [None] * span_of(&header)
            elif header.attributes & CODEC_BITS:
                unpacked = unpack(base + start, &header, codec_decompress)
                PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
                try:
                    add_keys(found, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header, start)
                finally:
                    PyBuffer_Release(&plain)
            else:
                add_keys(found, base + start + HEADER, base + start + header.size, &header, start)
            start += header.size
    finally:
        PyBuffer_Release(&view)
    return found


cdef int add_keys(list found, const uint8_t *at, const uint8_t *end, const Header *header, int64_t position) except -1:
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i
    if header.records > (end - at) // RECORD_MINIMUM:
        fail(position, RECORD_COUNT)
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault != FINE:
            fail(position, fault, i)
        if parsed.key_size < 0:
            found.append(None)
        else:
            found.append(PyBytes_FromStringAndSize(<const char *>parsed.key, <Py_ssize_t>parsed.key_size))
    if at != end:
        fail(position, RECORD_SURPLUS)
    return 0


def digest_keys(keys not None, int64_t offset, uint64_t digest=0) -> int:
    """Return the digest of a set of (key, offset), grown by keys of records that begin at `offset`; None is none.

    It is the sum, modulo 2^64, of the low halves of SipHash-2-4-128 of the keys, keyed by (offset, 0): the same in
    any order.
    """
    cdef uint64_t pair[2]
    for key in keys:
        if key is not None:
            sip128(<const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key), <uint64_t>offset, 0, pair)
            digest += pair[0]
        offset += 1
    return digest
