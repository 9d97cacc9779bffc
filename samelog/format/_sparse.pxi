# Kernels that write batches of records that are at some of their offsets only.


def build_sparse(
    values, *, keys, headers, timestamps, offsets, int64_t first, int64_t behind, int32_t leader_epoch=-1,
) -> bytes:
    """Return one uncompressed batch that stands for the offsets [first, behind), and has records at some of them.

    Args:
        values, keys, headers, timestamps, offsets: sequences, as in `build_batches`; the offsets rise.

    Without values it is an empty batch, without timestamps, as compaction writes it.

    Raises:
        RecordTooLarge: nothing was built.
        ValueError: lengths of the sequences differ, or an offset is not in its place.
    """
    cdef tuple taken = tuple(values)
    cdef Py_ssize_t i, count = len(taken)
    cdef Item *items
    cdef Heap heap
    cdef Producer producer
    cdef bytes result
    cdef uint8_t *batch
    cdef list kept = []
    cdef tuple key_column = column(keys, "keys", count), header_column = column(headers, "header lists", count)
    cdef tuple places = column(offsets, "offsets", count)
    cdef int64_t size = HEADER, next_place = first, place, highest = -1
    if not 0 <= first < behind or behind - first > INT32_MAX:
        raise ValueError(f"no batch has the offsets from {first} to {behind}")
    producer.id = producer.epoch = -1
    producer.base_sequence = -1
    memset(&heap, 0, sizeof(Heap))
    items = <Item *>malloc(<size_t>max(1, count) * sizeof(Item))
    if items == NULL:
        raise MemoryError
    try:
        take_items(items, taken, key_column, header_column, timestamps, &heap, RECORD_LIMIT, kept)
        for i in range(count):
            place = PyLong_AsLongLong(places[i])
            if not next_place <= place < behind:
                raise ValueError(f"offset {place} is not in [{next_place}, {behind})")
            next_place = place + 1
            items[i].timestamp_delta = <int64_t>(<uint64_t>items[i].timestamp - <uint64_t>items[0].timestamp)
            items[i].offset_delta = <int32_t>(place - first)
            items[i].body_size = <int32_t>body_size(items + i, items[i].timestamp_delta, items[i].offset_delta)
            size += varint_size(items[i].body_size) + items[i].body_size
            if size > RECORD_LIMIT:
                raise RecordTooLarge(i, size, RECORD_LIMIT)
            highest = items[i].timestamp if i == 0 else max(highest, items[i].timestamp)
        result = PyBytes_FromStringAndSize(NULL, size)
        batch = <uint8_t *>PyBytes_AS_STRING(result)
        write_sparse(batch + HEADER, items, count, heap.data)
        finish_batch(batch, size, 0, <int32_t>count, items[0].timestamp if count else -1, highest, &producer)
        store64(batch, <uint64_t>first)
        store32(batch + 12, <uint32_t>leader_epoch)
        store32(batch + 23, <uint32_t>(behind - first - 1))
        store32(batch + 17, crc32c_update(0, batch + CRC_FROM, <size_t>(size - CRC_FROM)))
    finally:
        free(items)
        release(&heap)
    return result


cdef void write_sparse(uint8_t *out, const Item *items, Py_ssize_t count, const uint8_t *headers) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        out = put_record(out, items + i, headers)
