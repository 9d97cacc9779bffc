# Kernels of compaction: which records are the newest of their keys, and batches without the others.

cdef extern from * nogil:
    """
    static inline uint64_t samelog_rotl(uint64_t v, int bits) { return v << bits | v >> (64 - bits); }
    static inline void samelog_sip_round(uint64_t *v) {
        v[0] += v[1]; v[1] = samelog_rotl(v[1], 13); v[1] ^= v[0]; v[0] = samelog_rotl(v[0], 32);
        v[2] += v[3]; v[3] = samelog_rotl(v[3], 16); v[3] ^= v[2];
        v[0] += v[3]; v[3] = samelog_rotl(v[3], 21); v[3] ^= v[0];
        v[2] += v[1]; v[1] = samelog_rotl(v[1], 17); v[1] ^= v[2]; v[2] = samelog_rotl(v[2], 32);
    }
    static inline uint64_t samelog_little(const uint8_t *p, size_t size) {
        uint64_t v = 0;
        for (size_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
        return v;
    }
    /* SipHash-2-4 with 128 bits. */
    static inline void samelog_sip128(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1, uint64_t *out) {
        uint64_t v[4] = {
            k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL ^ 0xee,
            k0 ^ 0x6c7967656e657261ULL, k1 ^ 0x7465646279746573ULL,
        };
        const uint8_t *end = data + (size & ~(size_t)7);
        uint64_t word;
        for (; data != end; data += 8) {
            word = samelog_little(data, 8);
            v[3] ^= word; samelog_sip_round(v); samelog_sip_round(v); v[0] ^= word;
        }
        word = samelog_little(data, size & 7) | (uint64_t)size << 56;
        v[3] ^= word; samelog_sip_round(v); samelog_sip_round(v); v[0] ^= word;
        v[2] ^= 0xee;
        for (int i = 0; i < 4; i++) samelog_sip_round(v);
        out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
        v[1] ^= 0xdd;
        for (int i = 0; i < 4; i++) samelog_sip_round(v);
        out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    """
    void sip128 "samelog_sip128"(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1, uint64_t *out)

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t record  # its number, and one more; 0: the slot is free

cdef struct Keys:
    Slot *slots
    uint64_t capacity  # a power of two
    uint64_t used
    uint64_t k0
    uint64_t k1
    uint64_t share  # of keys: those whose low bits are `turn`
    uint64_t turn
    int64_t records  # seen in this turn
    Heap kept  # one bit for each record

cdef enum:
    KEYS_FULL = -1


cdef inline void drop_record(Keys *keys, int64_t number) noexcept nogil:
    keys.kept.data[number >> 3] &= <uint8_t>~(1 << (number & 7))


cdef inline bint is_kept(const Keys *keys, int64_t number) noexcept nogil:
    return keys.kept.data[number >> 3] >> (number & 7) & 1


cdef Fault count_kept(Keys *keys, int64_t records) noexcept nogil:
    """Make room for so many records more, which are kept so far."""
    cdef size_t wanted = <size_t>((keys.records + records + 7) >> 3)
    if wanted <= keys.kept.used:
        return FINE
    if reserve(&keys.kept, wanted - keys.kept.used) != FINE:
        return OUT_OF_MEMORY
    memset(keys.kept.data + keys.kept.used, 255, wanted - keys.kept.used)
    keys.kept.used = wanted
    return FINE


cdef inline bint note_key(Keys *keys, const uint8_t *key, Py_ssize_t size, int64_t number) noexcept nogil:
    """The record is the newest of its key so far; False: there is no room for another key."""
    cdef uint64_t digest[2]
    cdef uint64_t at
    cdef Slot *slot
    sip128(key, <size_t>size, keys.k0, keys.k1, digest)
    if digest[0] & (keys.share - 1) != keys.turn:
        return True
    at = digest[1] & (keys.capacity - 1)
    while True:
        slot = &keys.slots[at]
        if slot.record == 0:
            if keys.used * 4 >= keys.capacity * 3:
                return False
            keys.used += 1
            slot.low, slot.high = digest[0], digest[1]
            break
        if slot.low == digest[0] and slot.high == digest[1]:
            drop_record(keys, slot.record - 1)
            break
        at = (at + 1) & (keys.capacity - 1)
    slot.record = number + 1
    return True


cdef Fault note_records(
    Keys *keys, const uint8_t *at, const uint8_t *end, const Header *header, bint is_aborted, bint *is_full,
) noexcept nogil:
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    if count_kept(keys, header.records) != FINE:
        return OUT_OF_MEMORY
    for i in range(header.records):
        fault = read_record(&at, end, header, i, &parsed)
        if fault != FINE:
            return fault
        if is_aborted:
            drop_record(keys, keys.records)
        elif parsed.key_size >= 0 and not note_key(keys, parsed.key, parsed.key_size, keys.records):
            is_full[0] = True
            return FINE
        keys.records += 1
    return FINE if at == end else RECORD_SURPLUS


cdef Fault keep_records(
    Keys *keys, Heap *out, const uint8_t *at, const uint8_t *end, const Header *header, int64_t tombstones_below,
    int64_t *left, int64_t *highest,
) noexcept nogil:
    """Put the records that stay behind what is in `out`, to the byte; how many these are, and the newest timestamp."""
    cdef Parsed parsed
    cdef Fault fault
    cdef int64_t i, timestamp
    cdef const uint8_t *begin
    left[0] = 0
    if header.records > (end - at) // RECORD_MINIMUM:
        return RECORD_COUNT
    if reserve(out, <size_t>(end - at)) != FINE:
        return OUT_OF_MEMORY
    for i in range(header.records):
        begin = at
        fault = read_record(&at, end, header, i, &parsed)
        if fault != FINE:
            return fault
        keys.records += 1
        if not is_kept(keys, keys.records - 1):
            continue
        if parsed.key_size >= 0 and parsed.value_size < 0 and header.base_offset + parsed.offset_delta < tombstones_below:
            continue
        timestamp = timestamp_of(header, &parsed)
        if left[0] == 0 or timestamp > highest[0]:
            highest[0] = timestamp
        memcpy(out.data + out.used, begin, <size_t>(at - begin))
        out.used += <size_t>(at - begin)
        left[0] += 1
    return FINE if at == end else RECORD_SURPLUS


@cython.final
@cython.no_gc_clear
cdef class Compaction:
    """What stays of a run of batches, and the batches of it.

    First give all batches to `note`, in order; where that answers False, there are more keys than fit in one turn: call
    `more_turns` and begin anew. Once a turn is through, go on with `next_turn`, until that answers False. Then
    give all batches to `rewrite`, in order, and call `finish`. What stays does not depend on the number of turns.

    Attributes:
        kept, dropped: records of what was rewritten so far.
    """

    cdef Keys keys
    cdef Heap out
    cdef dict aborted  # producer id -> first offsets and those of the markers, in order
    cdef set unfinished
    cdef int64_t tombstones_below
    cdef int64_t empty_from
    cdef int64_t empty_to
    cdef int32_t empty_epoch
    cdef readonly int64_t kept
    cdef readonly int64_t dropped

    def __cinit__(
        self, *, int64_t memory_bytes, int64_t records, bytes seed not None, int64_t tombstones_below, aborted,
    ):
        """`records`: how many there are at most. `aborted`: (producer id, first offset, offset of the marker) of
        transactions. Tombstones and markers below `tombstones_below` may go. `seed`: 16 bytes.
        """
        cdef uint64_t wanted = <uint64_t>max(0, records) + <uint64_t>max(0, records) // 2
        if len(seed) != 16:
            raise ValueError("a seed has 16 bytes")
        self.keys.capacity = 64
        while self.keys.capacity < wanted and self.keys.capacity * 2 * sizeof(Slot) <= <uint64_t>max(0, memory_bytes):
            self.keys.capacity *= 2
        self.keys.slots = <Slot *>calloc(self.keys.capacity, sizeof(Slot))
        if self.keys.slots == NULL:
            raise MemoryError
        self.keys.k0 = load64(<const uint8_t *>PyBytes_AS_STRING(seed))
        self.keys.k1 = load64(<const uint8_t *>PyBytes_AS_STRING(seed) + 8)
        self.keys.share = 1
        self.aborted = {}
        for producer_id, first, last in sorted(aborted):
            firsts, lasts = self.aborted.setdefault(producer_id, ([], []))
            firsts.append(first)
            lasts.append(last)
        self.unfinished = set()
        self.tombstones_below = tombstones_below
        self.empty_from = self.empty_to = -1

    def __dealloc__(self):
        free(self.keys.slots)
        release(&self.keys.kept)
        release(&self.out)

    cdef void begin_turn(self) noexcept:
        if self.keys.used > 0:
            with nogil:
                memset(self.keys.slots, 0, self.keys.capacity * sizeof(Slot))
        self.keys.used = 0
        self.keys.records = 0

    def more_turns(self) -> None:
        """Half as many keys in each turn; begin with the first batch again."""
        self.keys.share *= 2
        self.keys.turn = 0
        self.keys.kept.used = 0
        self.begin_turn()

    def next_turn(self) -> bool:
        """Begin with the first batch again, for other keys; False: all keys were seen, and what stays is known."""
        self.begin_turn()
        self.keys.turn += 1
        return self.keys.turn < self.keys.share

    @property
    def turns(self) -> int:
        """How many turns it takes, as far as is known."""
        return self.keys.share

    cdef bint is_aborted(self, const Header *header):
        """Transactions of a producer lie one behind the other."""
        found = self.aborted.get(header.producer_id)
        if found is None:
            return False
        at = bisect_right(found[0], header.base_offset) - 1
        return at >= 0 and header.base_offset <= found[1][at]

    def note(self, data not None, Py_ssize_t start, Py_ssize_t stop, codec_decompress) -> bool:
        """Look at the batches of `data[start:stop]`; False: there are too many keys.

        Raises:
            CorruptBatch: a batch or a record is invalid, or the data stops inside a batch. CRCs are not verified.
            Whatever `codec_decompress` raises.
        """
        cdef Py_buffer view, plain
        cdef Header header
        cdef Fault fault
        cdef const uint8_t *base
        cdef bint is_aborted, is_full = False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, view.len)
            base = <const uint8_t *>view.buf
            while start < stop and not is_full:
                open_batch(base, start, stop, &header, False)
                if header.attributes & CONTROL or header.records == 0:
                    start += header.size
                    continue
                is_aborted = header.attributes & TRANSACTIONAL and self.is_aborted(&header)
                if header.attributes & CODEC_BITS:
                    unpacked = unpack(base + start, &header, codec_decompress)
                    PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
                    with nogil:
                        fault = note_records(
                            &self.keys, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, &header,
                            is_aborted, &is_full,
                        )
                    PyBuffer_Release(&plain)
                else:
                    with nogil:
                        fault = note_records(
                            &self.keys, base + start + HEADER, base + start + header.size, &header, is_aborted, &is_full,
                        )
                if fault != FINE:
                    fail(start, fault)
                start += header.size
        finally:
            PyBuffer_Release(&view)
        return not is_full

    def rewrite(self, data not None, Py_ssize_t start, Py_ssize_t stop, codec_decompress, codec_compress) -> bytes:
        """What stays of the batches of `data[start:stop]`, as far as it is known; raises as `note`.

        The rule, which every node must follow to the byte: a batch of which everything stays is copied. One of which
        some records stay has these, to the byte, with their offset deltas, compressed by `codec_compress(codec, bytes)` if
        the batch was and that makes them smaller; its base offset, last offset delta, base timestamp, producer and sequence stay, maxTimestamp is the newest of what is left unless it is a
        LogAppendTime batch. Offsets of which nothing stays, one behind the other, are one empty batch, of the leader epoch
        of the first of them, without timestamps.
        """
        cdef Py_buffer view
        cdef Header header
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, view.len)
            while start < stop:
                open_batch(<const uint8_t *>view.buf, start, stop, &header, False)
                self.rewrite_batch(<const uint8_t *>view.buf + start, &header, start, codec_decompress, codec_compress)
                start += header.size
        finally:
            PyBuffer_Release(&view)
        return self.taken()

    def finish(self) -> bytes:
        """What is left to write: what follows goes elsewhere."""
        self.put_empty()
        return self.taken()

    cdef bytes taken(self):
        result = PyBytes_FromStringAndSize(<const char *>self.out.data, <Py_ssize_t>self.out.used) if self.out.used else b""
        self.out.used = 0
        return result

    cdef int rewrite_batch(
        self, const uint8_t *batch, const Header *header, int64_t position, codec_decompress, codec_compress,
    ) except -1:
        cdef Py_buffer plain
        if header.attributes & CONTROL:
            if self.control_stays(header):
                self.copy_batch(batch, header)
            else:
                self.add_empty(header)
            return 0
        if header.attributes & CODEC_BITS and header.records > 0:
            unpacked = unpack(batch, header, codec_decompress)
            PyObject_GetBuffer(unpacked, &plain, PyBUF_SIMPLE)
            try:
                self.keep(
                    batch, <const uint8_t *>plain.buf, <const uint8_t *>plain.buf + plain.len, header, position,
                    codec_compress,
                )
            finally:
                PyBuffer_Release(&plain)
        else:
            self.keep(batch, batch + HEADER, batch + header.size, header, position, None)
        return 0

    cdef bint control_stays(self, const Header *header):
        """A void batch does. A marker as long as records of its transaction, and for some time."""
        if not header.attributes & TRANSACTIONAL:
            return True
        if header.producer_id in self.unfinished:
            self.unfinished.discard(header.producer_id)
            return True
        return header.base_offset >= self.tombstones_below

    cdef int keep(
        self, const uint8_t *batch, const uint8_t *at, const uint8_t *end, const Header *header, int64_t position,
        codec_compress,
    ) except -1:
        """A batch whose records are, decompressed, from `at` to `end`. `codec_compress`: None if they were so already."""
        cdef int64_t left, highest = header.max_timestamp, empty_from = self.empty_from
        cdef size_t begin
        cdef bint is_packed
        cdef Fault fault
        if header.records == 0:
            return self.add_empty(header)
        # Room for the empty batch that may come before, which is known only when something stays.
        if reserve(&self.out, 2 * HEADER) != FINE:
            raise MemoryError
        begin = self.out.used
        self.out.used += HEADER * (2 if empty_from >= 0 else 1)
        with nogil:
            fault = keep_records(&self.keys, &self.out, at, end, header, self.tombstones_below, &left, &highest)
        if fault != FINE:
            fail(position, fault)
        self.kept += left
        self.dropped += header.records - left
        if left == 0:
            self.out.used = begin
            return self.add_empty(header)
        if header.attributes & TRANSACTIONAL:
            self.unfinished.add(header.producer_id)
        if left == header.records:
            self.out.used = begin
            return self.copy_batch(batch, header)
        if empty_from >= 0:
            self.write_empty(self.out.data + begin)
            begin += HEADER
        is_packed = codec_compress is not None and self.pack(begin + HEADER, header.attributes & CODEC_BITS, codec_compress)
        self.write_header(self.out.data + begin, <int64_t>(self.out.used - begin), header, left, highest, is_packed)
        return 0

    cdef bint pack(self, size_t begin, int codec, codec_compress) except -1:
        """Compress what is in `out` from there on; whether that made it smaller, and it is so now."""
        cdef Py_ssize_t size = <Py_ssize_t>(self.out.used - begin)
        packed = codec_compress(codec, PyBytes_FromStringAndSize(<const char *>self.out.data + begin, size))
        if not PyBytes_CheckExact(packed) or PyBytes_GET_SIZE(packed) >= size:
            return False
        memcpy(self.out.data + begin, PyBytes_AS_STRING(packed), <size_t>PyBytes_GET_SIZE(packed))
        self.out.used = begin + <size_t>PyBytes_GET_SIZE(packed)
        return True

    cdef void write_header(
        self, uint8_t *batch, int64_t size, const Header *header, int64_t left, int64_t highest, bint is_packed,
    ) noexcept:
        cdef uint32_t attributes = header.attributes if is_packed else header.attributes & ~<uint32_t>CODEC_BITS
        cdef Producer producer
        producer.id, producer.epoch, producer.base_sequence = header.producer_id, header.producer_epoch, header.base_sequence
        finish_batch(
            batch, size, attributes, <int32_t>left, header.base_timestamp,
            header.max_timestamp if header.attributes & LOG_APPEND_TIME else highest, &producer,
        )
        store64(batch, <uint64_t>header.base_offset)
        store32(batch + 12, <uint32_t>header.leader_epoch)
        store32(batch + 23, <uint32_t>header.last_offset_delta)
        store32(batch + 17, crc32c_update(0, batch + CRC_FROM, <size_t>(size - CRC_FROM)))

    cdef int copy_batch(self, const uint8_t *batch, const Header *header) except -1:
        self.put_empty()
        if reserve(&self.out, <size_t>header.size) != FINE:
            raise MemoryError
        memcpy(self.out.data + self.out.used, batch, <size_t>header.size)
        self.out.used += <size_t>header.size
        return 0

    cdef int add_empty(self, const Header *header) except -1:
        cdef int64_t behind = header.base_offset + span_of(header)
        if self.empty_from >= 0 and behind - self.empty_from > INT32_MAX:
            self.put_empty()
        if self.empty_from < 0:
            self.empty_from = header.base_offset
            self.empty_epoch = header.leader_epoch
        self.empty_to = behind
        return 0

    cdef int put_empty(self) except -1:
        if self.empty_from < 0:
            return 0
        if reserve(&self.out, HEADER) != FINE:
            raise MemoryError
        self.write_empty(self.out.data + self.out.used)
        self.out.used += HEADER
        return 0

    cdef void write_empty(self, uint8_t *batch) noexcept:
        cdef Header header
        memset(&header, 0, sizeof(Header))
        header.base_offset, header.leader_epoch = self.empty_from, self.empty_epoch
        header.last_offset_delta = <int32_t>(self.empty_to - self.empty_from - 1)
        header.base_timestamp = header.max_timestamp = -1
        header.producer_id, header.producer_epoch, header.base_sequence = -1, -1, -1
        self.write_header(batch, HEADER, &header, 0, -1, False)
        self.empty_from = -1
