"""Types of the compiled kernels; their docstrings are in the .pyx and .pxi files."""

from collections.abc import Callable, Sequence
from typing import final, overload

from typing_extensions import Buffer

HEADER_BYTES: int
MAX_BATCH_BYTES_DEFAULT: int
MAX_RECORD_BYTES: int

_Decompress = Callable[[int, bytes], Buffer]
_Headers = Sequence[tuple[str, Buffer | None]]
_BatchHeader = tuple[int, int, int, int, int, int, int, int, int, int]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_portable(data: Buffer, value: int = 0) -> int: ...

@final
class Scan:
    @property
    def end(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def last_start(self) -> int: ...
    @property
    def last_crc(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def digest(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def has_producer(self) -> bool: ...
    @property
    def is_sparse(self) -> bool: ...
    @property
    def error(self) -> str | None: ...
    @property
    def short(self) -> bool: ...

def scan(
    data: Buffer,
    *,
    start: int = 0,
    stop: int = -1,
    verify_crc: bool = True,
    max_batch_bytes: int = ...,
    max_batches: int = -1,
    max_bytes: int = -1,
) -> Scan: ...
def find_batch(data: Buffer, offset: int) -> int: ...
def batch_headers(data: Buffer, start: int, stop: int) -> list[_BatchHeader]: ...
def assign_offsets(
    data: Buffer,
    start: int,
    stop: int,
    base_offset: int,
    leader_epoch: int,
    *,
    file_position: int,
    bytes_since_index: int,
    index_interval: int,
    points: list[tuple[int, int, int, int]],
) -> tuple[int, int, int]: ...
def stamp_append_time(data: Buffer, append_ms: int) -> None: ...
def build_record(
    value: Buffer | None,
    key: Buffer | None = None,
    headers: _Headers | None = None,
    timestamp: int = -1,
    max_record_bytes: int = ...,
) -> bytes: ...

@final
class BytesColumn(Sequence[bytes | None]):
    def __init__(
        self, validity: Buffer | None, offsets: Buffer, data: Buffer, first: int, count: int
    ) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> BytesColumn: ...

def build_batches(
    values: Sequence[Buffer | None],
    *,
    keys: Sequence[Buffer | None] | None = None,
    headers: Sequence[_Headers | None] | None = None,
    timestamps: int | Sequence[int],
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    batch_bytes: int,
    max_record_bytes: int,
) -> bytes: ...
def build_sparse(
    values: Sequence[Buffer | None],
    *,
    keys: Sequence[Buffer | None],
    headers: Sequence[_Headers | None],
    timestamps: Sequence[int],
    offsets: Sequence[int],
    first: int,
    behind: int,
    leader_epoch: int = -1,
) -> bytes: ...

@final
class BatchBuilder:
    def __init__(self, max_record_bytes: int = ...) -> None: ...
    @property
    def records(self) -> int: ...
    def add(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: _Headers | None = None,
        timestamp: int = -1,
        batch_bytes: int = ...,
    ) -> int: ...
    def finish(
        self, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
    ) -> bytes: ...

@final
class Record:
    def __init__(
        self,
        topic: str = "",
        partition: int = 0,
        offset: int = 0,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...

def decode_records(
    data: Buffer,
    start: int,
    stop: int,
    topic: str,
    partition: int,
    codec_decompress: _Decompress,
    *,
    verify_crc: bool = ...,
) -> list[Record]: ...
def check_records(
    data: Buffer, codec_decompress: _Decompress, *, takes_sparse: bool = ...
) -> int: ...
def find_time(
    batch: Buffer, since: int, first: int, codec_decompress: _Decompress
) -> tuple[int, int] | None: ...
def slice_batch(batch: Buffer, skip: int, codec_decompress: _Decompress) -> bytes: ...
def leave_out(data: Buffer, lengths: Sequence[int], codec_decompress: _Decompress) -> bytearray: ...
def keys_of(
    data: Buffer, start: int, stop: int, codec_decompress: _Decompress
) -> list[bytes | None]: ...
def digest_keys(keys: Sequence[bytes | None], offset: int, digest: int = 0) -> int: ...

@final
class Compaction:
    def __init__(
        self,
        *,
        memory_bytes: int,
        records: int,
        seed: bytes,
        tombstones_below: int,
        aborted: Sequence[tuple[int, int, int]],
    ) -> None: ...
    @property
    def kept(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def turns(self) -> int: ...
    def more_turns(self) -> None: ...
    def next_turn(self) -> bool: ...
    def note(self, data: Buffer, start: int, stop: int, codec_decompress: _Decompress) -> bool: ...
    def rewrite(
        self,
        data: Buffer,
        start: int,
        stop: int,
        codec_decompress: _Decompress,
        codec_compress: Callable[[int, bytes], bytes],
    ) -> bytes: ...
    def finish(self) -> bytes: ...

@final
class Block(Buffer):
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class Strand:
    @property
    def rows(self) -> int: ...
    @property
    def nulls(self) -> int: ...
    @property
    def validity(self) -> Block: ...
    @property
    def offsets(self) -> Block: ...
    @property
    def data(self) -> Block: ...

@final
class Columns:
    @property
    def end(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def offsets(self) -> Block: ...
    @property
    def timestamps(self) -> Block: ...
    @property
    def timestamp_types(self) -> Block: ...
    @property
    def keys(self) -> Strand: ...
    @property
    def values(self) -> Strand: ...
    @property
    def header_offsets(self) -> Block: ...
    @property
    def header_keys(self) -> Strand: ...
    @property
    def header_values(self) -> Strand: ...

def decode_columns(
    data: Buffer,
    start: int,
    stop: int,
    codec_decompress: _Decompress,
    *,
    max_bytes: int = ...,
    verify_crc: bool = ...,
) -> Columns: ...
def murmur2(data: Buffer) -> int: ...
def write_at(descriptor: int, data: Buffer, position: int) -> None: ...
def write_record(
    descriptor: int,
    position: int,
    limit: int,
    value: Buffer | None,
    key: Buffer | None,
    headers: _Headers | None,
    timestamp: int,
    max_record_bytes: int,
) -> int: ...
