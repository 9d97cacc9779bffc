# cython: language_level=3, embedsignature=True, initializedcheck=False
"""The loops that touch every record or every byte: CRC-32C, and scan, build, patch and decode of Kafka v2 record batches.

Why: everything else in the package works per batch or per range; what is per record or per byte is here, compiled.
The format is Kafka's (`org.apache.kafka.common.record.DefaultRecordBatch` and `DefaultRecord`); batch.py shows its layout.

Invariant: no byte outside the given buffer is ever read or written, whatever lengths the bytes claim. Every length is
checked against what is there before it is used; bad bytes give `CorruptBatch`, or an error in a `Scan`, and nothing
else. Each function has a plain Python twin in tests/format/oracle.py, with which it must agree.

"Any buffer" below means bytes, bytearray, memoryview, mmap: whatever lends contiguous bytes. Positions are counted in
bytes from its start. The GIL is released only over long stretches, and nobody may change the buffer meanwhile.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, INT32_MAX, INT64_MAX
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from bisect import bisect_right

from samelog.format.errors import CorruptBatch, RecordTooLarge

include "_primitives.pxi"
include "_scan.pxi"
include "_build.pxi"
include "_sparse.pxi"
include "_decode.pxi"
include "_check.pxi"
include "_columns.pxi"
include "_publish.pxi"
include "_compact.pxi"
include "_keys.pxi"

crc32c_init()
