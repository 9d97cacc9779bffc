"""Targets for what Kafka clients send: frames, requests of every API and version, record batches,
and what clients wrap into requests for each other.

Invariant: the seeds are valid input, written by Kafka's descriptions, also
where the listener has a codec of its own.
"""

from __future__ import annotations

import base64
import contextlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec
from samelog.format.consumer_protocol import assigned_partitions, subscribed_topics
from samelog.kafka.apis.produce import OLDEST
from samelog.kafka.clients.sasl import AuthenticationFailed, PlainExchange, ScramExchange
from samelog.kafka.codec.descriptions import Structure, structure_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError, MalformedRequest
from samelog.kafka.codec.framing import FrameReader, read_client_id, read_header
from samelog.kafka.codec.schemas import read_request, write_request
from samelog.kafka.record_check import check_crc, check_records
from samelog.kafka.registry import APIS

FRAME_BYTES_MAX = 1 << 16
BATCH_BYTES_MAX = 1 << 20
PASSWORDS = {"ann": "secret"}
ATTRIBUTES_AT = 21
PRODUCE = 0
_VALUES = {
    "bool": True,
    "uuid": None,
    "string": "x",
    "bytes": b"x",
    "error_code": ErrorCode.none,
}
"""By kind of field; everything else is a number."""


def frames(data: bytes) -> None:
    """The same requests are cut however the bytes arrive, and the same length is refused."""
    whole, pieces = FrameReader(FRAME_BYTES_MAX), FrameReader(FRAME_BYTES_MAX)
    at_once = _cut(whole, [data])
    assert _cut(pieces, [data[at : at + 5] for at in range(0, len(data), 5)]) == at_once
    assert len(pieces.partial) <= len(data)


def _cut(reader: FrameReader, pieces: list[bytes]) -> list[bytes] | str:
    try:
        return [bytes(frame) for piece in pieces for frame in reader.feed(piece)]
    except MalformedRequest as error:
        return str(error)


def requests(data: bytes) -> None:
    """A request of any API is read, or malformed."""
    frame = memoryview(data)
    with contextlib.suppress(MalformedRequest):
        header = read_header(frame)
        api = APIS.get(header.key)
        if api is not None and api.first <= header.version <= api.last:
            _, at = read_client_id(frame, flexible=api.is_flexible(header.version))
            if api.read is None:
                read_request(api.key, header.version, frame[at:])
            else:
                api.read(header.version, frame[at:])


def batches(data: bytes) -> None:
    """What is taken is one valid batch of a codec that its version may use."""
    version = 3 + data[0] % 9 if data else 3
    records = memoryview(data)[1:]
    with contextlib.suppress(ApiError):
        header = check_records(records, version=version, limit_bytes=BATCH_BYTES_MAX)
        check_crc(records)
        scan = kernels.scan(records, max_batch_bytes=BATCH_BYTES_MAX)
        assert (scan.end, scan.batches, scan.records) == (len(records), 1, header.records)
        assert version >= 7 or header.codec is not Codec.ZSTD


def authentication(data: bytes) -> None:
    """Nobody gets in without the password, which no damage makes up."""
    first, _, second = data.partition(b"\n")
    plain = PlainExchange(PASSWORDS)
    scram = ScramExchange("SCRAM-SHA-256", PASSWORDS, nonce="n", secret=b"s")
    with contextlib.suppress(AuthenticationFailed):
        plain.step(first)
    with contextlib.suppress(AuthenticationFailed):
        scram.step(first)
        scram.step(second)
    assert plain.user is None or first.endswith(b"\0ann\0secret")
    assert scram.user is None


def group_metadata(data: bytes) -> None:
    """What members write for each other is read, or passed over."""
    topics = subscribed_topics(data)
    assert topics is None or sum(map(len, topics)) <= len(data)
    assert 4 * sum(len(each) for _, each in assigned_partitions(data)) <= len(data)


# --- valid input ---------------------------------------------------------------------------------


def request_seeds() -> Iterator[bytes]:
    """A request of every API: the oldest version taken, the newest, and the first with tags."""
    for api in APIS.values():
        oldest = max(api.first, OLDEST) if api.key == PRODUCE else api.first
        flexible = min(api.last, max(oldest, api.flexible_from))
        for version in sorted({oldest, flexible, api.last}):
            tags = b"\0" if api.is_flexible(version) else b""
            head = struct.pack(">hhih", api.key, version, 7, 4) + b"fuzz" + tags
            tree = _example(structure_of("request", api.key, version))
            yield head + write_request(api.key, version, tree)


def _example(structure: Structure) -> Mapping[str, Any]:
    """A tree with one element in every array."""
    tree = {}
    for field in (*structure.fields, *structure.tagged):
        value = _VALUES.get(field.kind, 1) if field.structure is None else _example(field.structure)
        tree[field.name] = [value] if field.is_array else value
    return tree


def frame_seeds() -> list[bytes]:
    """Requests as they come: alone, and one after the other."""
    framed = [len(body).to_bytes(4, "big") + body for body in (b"x", b"request" * 9)]
    return [*framed, b"".join(framed)]


def batch_seeds() -> list[bytes]:
    """Batches behind a byte for the version, without a codec and with the name of each."""
    plain = kernels.build_batches(
        [b"a", b"b"], timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    return [bytes([number]) + _with_codec(plain, codec) for number, codec in enumerate(Codec, 3)]


def _with_codec(plain: bytes, codec: Codec) -> bytes:
    changed = bytearray(plain)
    struct.pack_into(">H", changed, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", changed, 17, kernels.crc32c(memoryview(changed)[ATTRIBUTES_AT:]))
    return bytes(changed)


def authentication_seeds() -> list[bytes]:
    """PLAIN, and both of SCRAM's messages with a proof that is wrong."""
    proof = base64.b64encode(bytes(32))
    return [b"\0ann\0secret", b"n,,n=ann,r=abc\nc=biws,r=abcn,p=" + proof]


def group_metadata_seeds() -> list[bytes]:
    """A subscription to two topics, and an assignment of two partitions."""
    subscription = struct.pack(">hih1sh1s", 1, 2, 1, b"t", 1, b"u") + struct.pack(">i", -1)
    assignment = struct.pack(">hih1siii", 1, 1, 1, b"t", 2, 0, 1) + struct.pack(">i", -1)
    return [subscription, assignment]
