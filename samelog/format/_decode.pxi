# Kernels that read the records inside batches: as objects, and for slicing.

cdef struct Parsed:
    int64_t timestamp_delta
    const uint8_t *key
    Py_ssize_t key_size  # -1: null
    const uint8_t *value
    Py_ssize_t value_size  # -1: null
    const uint8_t *headers  # the encoded header count and headers
    const uint8_t *first_header
    const uint8_t *end
    int64_t header_count
    int64_t offset_delta
    uint8_t attributes


cdef inline const uint8_t *get_field(
    const uint8_t *at, const uint8_t *end, const uint8_t **data, Py_ssize_t *size, bint nullable, Fault *fault,
) noexcept nogil:
    """Read a length and that many bytes; returns the position behind them, or NULL."""
    cdef int64_t length
    at = get_varint(at, end, 32, &length)
    if at == NULL:
        fault[0] = RECORD_VARINT
        return NULL
    if length < (-1 if nullable else 0) or length > end - at:
        fault[0] = RECORD_FIELD
        return NULL
    data[0] = at
    size[0] = <Py_ssize_t>length
    return at + length if length > 0 else at


cdef inline const uint8_t *get_header(
    const uint8_t *at, const uint8_t *end, const uint8_t **key, Py_ssize_t *key_size, const uint8_t **value,
    Py_ssize_t *value_size, Fault *fault,
) noexcept nogil:
    at = get_field(at, end, key, key_size, False, fault)
    if at == NULL:
        return NULL
    return get_field(at, end, value, value_size, True, fault)


cdef Fault check_headers(const Parsed *record) noexcept nogil:
    """Walk over the headers of a record: they must be whole and end where the record does."""
    cdef const uint8_t *at = record.first_header
    cdef const uint8_t *data
    cdef Py_ssize_t size
    cdef Fault fault = FINE
    cdef int64_t i
    for i in range(record.header_count):
        at = get_header(at, record.end, &data, &size, &data, &size, &fault)
        if at == NULL:
            return fault
    return FINE if at == record.end else RECORD_SURPLUS


cdef inline Fault read_record(
    const uint8_t **cursor, const uint8_t *end, const Header *header, int64_t index, Parsed *record,
) noexcept nogil:
    """Read the record at the cursor, all but its headers, and move the cursor behind it. `record` has the one before."""
    cdef int64_t length, least = index, most = index
    cdef const uint8_t *at = get_varint(cursor[0], end, 32, &length)
    cdef Fault fault = FINE
    if at == NULL:
        return RECORD_VARINT
    if length < RECORD_MINIMUM - 1 or length > end - at:
        return RECORD_LENGTH
    if is_sparse(header):
        least = record.offset_delta + 1 if index > 0 else 0
        most = header.last_offset_delta
    end = at + length
    record.attributes = at[0]
    at = get_varint(at + 1, end, 64, &record.timestamp_delta)
    if at == NULL:
        return RECORD_VARINT
    at = get_varint(at, end, 32, &record.offset_delta)
    if at == NULL:
        return RECORD_VARINT
    if not least <= record.offset_delta <= most:
        return RECORD_OFFSET
    at = get_field(at, end, &record.key, &record.key_size, True, &fault)
    if at == NULL:
        return fault
    at = get_field(at, end, &record.value, &record.value_size, True, &fault)
    if at == NULL:
        return fault
    record.headers = at
    at = get_varint(at, end, 32, &record.header_count)
    if at == NULL:
        return RECORD_VARINT
    if record.header_count < 0 or record.header_count > (end - at) // 2:
        return RECORD_HEADERS
    if record.header_count == 0 and at != end:
        return RECORD_SURPLUS
    record.first_header = at
    record.end = cursor[0] = end
    return FINE


cdef inline int64_t timestamp_of(const Header *header, const Parsed *record) noexcept nogil:
    """A record's timestamp in ms; 64-bit numbers wrap, as in the encoding."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>record.timestamp_delta)


cdef int open_batch(const uint8_t *data, int64_t start, int64_t stop, Header *header, bint verify_crc=True) except -1:
    """Read the header at `start` and verify the batch's CRC."""
    cdef Fault fault = read_header(data + start, stop - start, INT32_MAX, header)
    if fault != FINE:
        fail(start, fault)
    if verify_crc and not crc_matches(data + start, header):
        fail(start, BAD_CRC)
    return 0


cdef object unpack(const uint8_t *batch, const Header *header, object codec_decompress):
    """The decompressed records of a compressed batch, as something that lends its bytes."""
    blob = PyBytes_FromStringAndSize(<const char *>batch + HEADER, <Py_ssize_t>(header.size - HEADER))
    return codec_decompress(<int>(header.attributes & CODEC_BITS), blob)


@cython.final
@cython.no_gc  # holds only bytes, str and tuples of them: nothing that could be part of a cycle
@cython.freelist(256)
cdef class Record:
    """One record of a topic; immutable.

    Attributes:
        topic, partition, offset: where it is.
        timestamp: ms since the epoch; of LogAppendTime batches the batch's maxTimestamp.
        timestamp_type: 0 CreateTime, 1 LogAppendTime.
        key, value: bytes or None.
        headers: tuple of (str, bytes or None). Bytes of a header key that are not UTF-8 became U+FFFD.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t timestamp_type
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

    def __cinit__(
        self, str topic not None="", int32_t partition=0, int64_t offset=0, int64_t timestamp=-1, int32_t timestamp_type=0,
        bytes key=None, bytes value=None, headers=(),
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = check_header_pairs(headers) if headers else ()

    cdef tuple fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers
        )

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.fields() == (<Record>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __reduce__(self):
        return Record, self.fields()

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, timestamp={self.timestamp}, "
            f"timestamp_type={self.timestamp_type}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


cdef tuple check_header_pairs(headers):
    pairs = []
    for key, value in headers:
        if type(key) is not str or not (value is None or type(value) is bytes):
            raise TypeError("headers are pairs of str and bytes or None")
        pairs.append((key, value))
    return tuple(pairs)


cdef inline bytes field_bytes(const uint8_t *data, Py_ssize_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>data, size)


cdef tuple headers_of(const Parsed *record):
    """The headers of a record whose headers were checked."""
    cdef const uint8_t *at = record.first_header
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef Py_ssize_t key_size, value_size
    cdef Fault fault
    cdef int64_t i
    cdef list result = []
    for i in range(record.header_count):
        at = get_header(at, record.end, &key, &key_size, &value, &value_size, &fault)
        if at == NULL:
            raise BufferError("the buffer was changed by somebody else")
        name = PyUnicode_DecodeUTF8(<const char *>key, key_size, b"replace")
        result.append((name, field_bytes(value, value_size)))
    return tuple(result)


cdef int append_records(
    list out, const uint8_t *at, const uint8_t *end, const Header *header, int64_t position, str topic, int32_t partition,
) except -1:
    """Append the records in the (decompressed) bytes from `at` to `end` to `out`."""
    cdef Parsed parsed
    cdef Record record
    cdef Fault fault
    cdef int64_t i
    if header.records > (end - at) // RECORD_MINIMUM:
        fail(position, RECORD_COUNT)
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault == FINE and parsed.header_count > 0:
            fault = check_headers(&parsed)
        if fault != FINE:
            fail(position, fault, i)
        record = Record.__new__(Record)
        record.topic = topic
        record.partition = partition
        record.offset = <int64_t>(<uint64_t>header.base_offset + <uint64_t>parsed.offset_delta)
        record.timestamp = timestamp_of(header, &parsed)
        record.timestamp_type = 1 if header.attributes & LOG_APPEND_TIME else 0
        record.key = field_bytes(parsed.key, parsed.key_size)
        record.value = field_bytes(parsed.value, parsed.value_size)
        if parsed.header_count > 0:
            record.headers = headers_of(&parsed)
        out.append(record)
    if at != end:
        fail(position, RECORD_SURPLUS)
    return 0


def decode_records(
    data not None, Py_ssize_t start, Py_ssize_t stop, str topic not None, int32_t partition, codec_decompress, *,
    bint verify_crc=True,
) -> list:
    """Return the records of all batches in `data[start:stop]`, in order; control batches are skipped.

    `codec_decompress(codec, blob)` is called for compressed batches; `compression.decompress` fits. CRCs are verified,
    unless whoever calls has just done so.

    Raises:
        CorruptBatch: a batch or a record in it is invalid, or the data stops inside a batch.
        ValueError: start and stop are not inside the data.
        Whatever `codec_decompress` raises.
    """
    cdef Py_buffer view, plain
    cdef const uint8_t *base
    cdef Header header
    cdef list result = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        base = <const uint8_t *>view.buf
        while start < stop:
            open_batch(base, start, stop, &header, verify_crc)
            if header.attributes & CONTROL:
                pass
            elif header.attributes & CODEC_BITS:
                unpacked = unpack(base + start, &header, codec_decompress)
                PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
                try:
                    append_records(
                        result, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header, start, topic, partition
                    )
                finally:
                    PyBuffer_Release(&plain)
            else:
                append_records(
                    result, base + start + HEADER, base + start + header.size, &header, start, topic, partition
                )
            start += header.size
    finally:
        PyBuffer_Release(&view)
    return result


# Which of a run of records stay: so many do, so many do not, and so on; all behind the last run do.
cdef struct Runs:
    const int64_t *lengths
    Py_ssize_t count
    Py_ssize_t at
    int64_t left  # of the present run


cdef void begin_runs(Runs *runs, const int64_t *lengths, Py_ssize_t count) noexcept nogil:
    runs.lengths, runs.count, runs.at = lengths, count, 0
    runs.left = lengths[0] if count > 0 else INT64_MAX


cdef inline bint next_stays(Runs *runs) noexcept nogil:
    """Whether the next record stays."""
    while runs.left <= 0 and runs.at < runs.count:
        runs.at += 1
        runs.left = runs.lengths[runs.at] if runs.at < runs.count else INT64_MAX
    runs.left -= 1
    return runs.at % 2 == 0


cdef int64_t count_staying(Runs runs, int64_t records, int64_t *first) noexcept nogil:
    """How many of the next records stay, and which is the first of them; `runs` is a copy."""
    cdef int64_t i, found = 0
    for i in range(records):
        if next_stays(&runs):
            if found == 0:
                first[0] = i
            found += 1
    return found


cdef Fault slice_records(
    Heap *out, const uint8_t *at, const uint8_t *end, Header *header, Runs *runs, int64_t *failed,
) noexcept nogil:
    """Put the records of a batch that stay into `out`, and change its header's times to theirs."""
    cdef Parsed parsed
    cdef Item item
    cdef Fault fault
    cdef int64_t i, timestamp, body, kept = 0, first = 0, highest = 0
    cdef uint8_t *written
    cdef size_t begin = out.used
    failed[0] = -1
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    for i in range(header.records):
        failed[0] = i
        fault = read_record(&at, end, header, i, &parsed)
        if fault == FINE and parsed.header_count > 0:
            fault = check_headers(&parsed)
        if fault != FINE:
            return fault
        if not next_stays(runs):
            continue
        timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>parsed.timestamp_delta)
        if kept == 0:
            first = highest = timestamp
        if timestamp > highest:
            highest = timestamp
        item.key = <const char *>parsed.key
        item.key_size = parsed.key_size
        item.value = <const char *>parsed.value
        item.value_size = parsed.value_size
        item.headers_at = 0
        item.headers_size = <size_t>(parsed.end - parsed.headers)
        item.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>first)
        item.offset_delta = <int32_t>kept
        body = body_size(&item, item.timestamp_delta, item.offset_delta)
        if <int64_t>(out.used - begin) + body + 5 > RECORD_LIMIT:
            return TOO_LONG
        item.body_size = <int32_t>body
        if reserve(out, <size_t>body + 5) != FINE:
            return OUT_OF_MEMORY
        written = put_record(out.data + out.used, &item, parsed.headers)
        out.data[out.used + varint_size(item.body_size)] = parsed.attributes
        out.used = <size_t>(written - out.data)
        kept += 1
    failed[0] = -1
    header.base_timestamp = first
    if not header.attributes & LOG_APPEND_TIME:
        header.max_timestamp = highest
    return FINE if at == end else RECORD_SURPLUS


cdef int add_sliced(
    Heap *out, const uint8_t *at, const uint8_t *end, Header *header, int64_t position, Runs *runs, int64_t first,
    int64_t staying,
) except -1:
    """Put a batch of the records that stay, at least one, behind what is in `out`. `first`: the first of them."""
    cdef Fault fault
    cdef Producer producer
    cdef int64_t failed
    cdef uint8_t *batch
    cdef size_t begin = out.used
    if reserve(out, HEADER + <size_t>(end - at)) != FINE:
        raise MemoryError
    out.used += HEADER
    fault = slice_records(out, at, end, header, runs, &failed)
    if fault != FINE:
        fail(position, fault, failed)
    producer.id = header.producer_id
    producer.epoch = header.producer_epoch
    producer.base_sequence = header.base_sequence
    if producer.base_sequence >= 0:
        producer.base_sequence = next_sequence(producer.base_sequence, first)
    batch = out.data + begin
    finish_batch(
        batch, <int64_t>(out.used - begin), header.attributes & ~<uint32_t>CODEC_BITS, <int32_t>staying,
        header.base_timestamp, header.max_timestamp, &producer,
    )
    store64(batch, <uint64_t>header.base_offset + <uint64_t>first)
    store32(batch + 12, <uint32_t>header.leader_epoch)
    return 0


cdef int add_staying(
    Heap *out, const uint8_t *batch, Header *header, int64_t position, Runs *runs, bint is_rewritten, codec_decompress,
) except -1:
    """Put what stays of a batch behind what is in `out`: to the byte if all does, unless `is_rewritten`."""
    cdef Py_buffer plain
    cdef int64_t i, first = 0, staying = count_staying(runs[0], header.records, &first)
    if staying == 0 or (staying == header.records and not is_rewritten):
        for i in range(header.records):
            next_stays(runs)
        if staying == 0:
            return 0
        if reserve(out, <size_t>header.size) != FINE:
            raise MemoryError
        memcpy(out.data + out.used, batch, <size_t>header.size)
        out.used += <size_t>header.size
        return 0
    if is_sparse(header) or header.attributes & CONTROL:
        fail(position, BAD_COUNT)
    if not header.attributes & CODEC_BITS:
        return add_sliced(out, batch + HEADER, batch + header.size, header, position, runs, first, staying)
    unpacked = unpack(batch, header, codec_decompress)
    PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
    try:
        return add_sliced(
            out, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, header, position, runs, first, staying
        )
    finally:
        PyBuffer_Release(&plain)


def slice_batch(batch not None, int64_t skip, codec_decompress) -> bytes:
    """Return one batch without its first `skip` records; `batch.slice_batch` states the rule and the errors."""
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef Header header
    cdef Heap out
    cdef Runs runs
    cdef int64_t lengths[2]
    memset(&out, 0, sizeof(Heap))
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t *>view.buf
        open_batch(base, 0, view.len, &header)
        if header.size != view.len:
            fail(0, RECORD_SURPLUS)
        if is_sparse(&header):
            fail(0, BAD_COUNT)
        if header.attributes & CONTROL or not 0 <= skip < header.records:
            raise ValueError(f"cannot drop {skip} of the {header.records} records of a batch, or it is a control batch")
        lengths[0], lengths[1] = 0, skip
        begin_runs(&runs, lengths, 2)
        add_staying(&out, base, &header, 0, &runs, True, codec_decompress)
        return PyBytes_FromStringAndSize(<const char *>out.data, <Py_ssize_t>out.used)
    finally:
        release(&out)
        PyBuffer_Release(&view)


def leave_out(data not None, lengths not None, codec_decompress) -> bytearray:
    """Return the batches of `data` without some records; `batch.leave_out` states the rule and the errors."""
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef Header header
    cdef Heap out, numbers
    cdef Runs runs
    cdef int64_t start = 0
    memset(&out, 0, sizeof(Heap))
    memset(&numbers, 0, sizeof(Heap))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        for length in lengths:
            if length < 0:
                raise ValueError(f"a run of {length} records")
            if reserve(&numbers, sizeof(int64_t)) != FINE:
                raise MemoryError
            (<int64_t *>(numbers.data + numbers.used))[0] = length
            numbers.used += sizeof(int64_t)
        begin_runs(&runs, <const int64_t *>numbers.data, <Py_ssize_t>(numbers.used // sizeof(int64_t)))
        base = <const uint8_t *>view.buf
        while start < view.len:
            open_batch(base, start, view.len, &header, False)
            add_staying(&out, base + start, &header, start, &runs, False, codec_decompress)
            start += header.size
        if runs.at < runs.count - 1 or (runs.at < runs.count and runs.left > 0):
            raise ValueError("there are fewer records than the runs say")
        return PyByteArray_FromStringAndSize(<const char *>out.data, <Py_ssize_t>out.used)
    finally:
        release(&numbers)
        release(&out)
        PyBuffer_Release(&view)
