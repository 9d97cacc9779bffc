# cython: language_level=3, embedsignature=True, initializedcheck=False
"""What a connection does for every byte: TLS without a call of the interpreter for each record, and cutting frames.

Why: Python's `ssl` costs a call, two turns of the interpreter's lock and a copy for each 16 KB in each direction; that
was half of what a connection costs.

Invariant: no byte outside a buffer is read or written, whatever lengths the bytes claim.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, memmove

import os
import ssl

import _ssl

from samelog.wire.frames import KINDS, LONGEST_FRAME_BYTES, bad_header
from samelog.wire.parts import PartialBatch

include "_receive_buffer.pxi"
include "_session.pxi"
