"""Both kinds of TLS session, each with either: what is sent arrives, and ends are told."""

from __future__ import annotations

import os
import random
import ssl
import threading
from pathlib import Path

import pytest

from samelog.runtime.network import _tls
from samelog.runtime.network._tls import ReceiveBuffer
from samelog.runtime.network.tls import client_context, server_context
from samelog.runtime.network.tls_session import BioSession, open_session
from samelog.wire.frames import DATA_LIMIT_BYTES, FrameType, encode_header
from tests.runtime.conftest import KINDS, Kind
from tests.runtime.pki import Authority

Session = _tls.Session | BioSession


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(client's, server's)."""
    authority = Authority(tmp_path_factory.mktemp("pki"))
    return client_context(authority.publisher("p")), server_context(authority.node("n1"))


@pytest.fixture(params=KINDS)
def pair(
    request: pytest.FixtureRequest,
    session_kind: Kind,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> tuple[Session, Session]:
    """(client, server), whose handshake is done; every kind with every kind."""
    client = session_kind(contexts[0], server_side=False)
    server = KINDS[request.param](contexts[1], server_side=True)
    shake_hands(client, server)
    return client, server


def shake_hands(client: Session, server: Session) -> None:
    done = [client.handshake(), False]
    while not all(done):
        for number, (one, other) in enumerate(((client, server), (server, client))):
            if data := one.take():
                other.feed(data)
                done[1 - number] = other.handshake()
                other.let_go()


def carry(sender: Session, receiver: Session, cuts: random.Random | None = None) -> bytes:
    """What the receiver reads of all that the sender has to send, given to it in pieces."""
    data, read = sender.take(), b""
    assert sender.to_send == 0
    while data:
        size = cuts.choice([1, 5, 100, 16_384, 300_000]) if cuts else len(data)
        read += receive(receiver, data[:size])[0]
        data = data[size:]
    return read


def receive(receiver: Session, data: bytes) -> tuple[bytes, bool]:
    """What it reads of this, and whether more may follow."""
    buffer = ReceiveBuffer()
    receiver.feed(data)
    try:
        going_on = receiver.read_into(buffer)
    finally:
        receiver.let_go()
    return buffer.take_all(), going_on


def test_bytes_arrive_however_they_are_cut(pair: tuple[Session, Session]) -> None:
    cuts = random.Random(1)
    for size in (1, 8192, 8193, 16_384, 65_536, 200_000):
        payload = cuts.randbytes(size)
        for one, other in (pair, pair[::-1]):
            one.write(b"head", payload)
            one.write(b"", memoryview(payload))
            assert carry(one, other, cuts) == b"head" + payload + payload


def test_small_writes_before_one_take_arrive_in_order(pair: tuple[Session, Session]) -> None:
    for number in range(1000):
        pair[0].write(b"", b"%04d" % number)
    assert carry(*pair) == b"".join(b"%04d" % number for number in range(1000))


def test_the_longest_frame(pair: tuple[Session, Session]) -> None:
    client, server = pair
    payload = os.urandom(DATA_LIMIT_BYTES)
    client.write(encode_header(FrameType.DATA, len(payload)), payload)
    buffer, data = ReceiveBuffer(), memoryview(client.take())
    for start in range(0, len(data), 1 << 18):
        server.feed(data[start : start + (1 << 18)])
        assert server.read_into(buffer)
        server.let_go()
    frame = buffer.next()
    assert frame is not None
    assert frame[0] is FrameType.DATA
    assert frame[2] == payload
    assert len(buffer) == 0


def test_a_goodbye_is_the_end_of_what_was_sent(pair: tuple[Session, Session]) -> None:
    client, server = pair
    client.write(b"", b"the last")
    client.say_goodbye()
    assert receive(server, client.take()) == (b"the last", False)
    server.write(b"", b"an answer")
    assert server.to_send


def test_a_goodbye_may_be_all_that_a_peer_says(pair: tuple[Session, Session]) -> None:
    client, server = pair
    client.say_goodbye()
    assert receive(server, client.take()) == (b"", False)


def test_nothing_is_sent_for_no_bytes(pair: tuple[Session, Session]) -> None:
    carry(*pair)
    pair[0].write(b"", b"")
    assert pair[0].take() == b""
    pair[0].write(b"head", b"")
    assert carry(*pair) == b"head"


def test_damaged_bytes_are_an_error_that_the_peer_is_told(pair: tuple[Session, Session]) -> None:
    client, server = pair
    client.write(b"", b"fine")
    assert carry(client, server) == b"fine"
    client.write(b"", bytes(100))
    data = bytearray(client.take())
    data[50] ^= 1
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
        receive(server, bytes(data))
    with pytest.raises(ssl.SSLError, match=r"(?i)alert.bad.record.mac"):
        receive(client, server.take())


def test_who_is_refused_after_its_handshake_hears_why_by_name(
    session_kind: Kind, contexts: tuple[ssl.SSLContext, ssl.SSLContext], tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger").publisher("p")
    context = client_context(stranger)
    context.load_verify_locations(cadata=contexts[0].get_ca_certs(binary_form=True)[0])
    client, server = (
        session_kind(context, server_side=False),
        session_kind(contexts[1], server_side=True),
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server)
    with pytest.raises(ssl.SSLError) as caught:
        receive(client, server.take())
    assert caught.value.reason == "TLSV1_ALERT_UNKNOWN_CA"


def test_a_tls_object_that_outlives_its_session_is_harmless(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    client, server = (
        _tls.Session(contexts[0], server_side=False),
        _tls.Session(contexts[1], server_side=True),
    )
    shake_hands(client, server)
    left = client.ssl_object
    del client
    assert left.selected_alpn_protocol() == "samelog/1"
    with pytest.raises(ssl.SSLError):
        left.write(b"x")
    with pytest.raises(ssl.SSLWantReadError):
        left.read(1)


def test_sessions_of_several_threads_are_not_mixed_up(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    heard: list[bytes] = []

    def talk(number: int) -> None:
        for _ in range(20):
            client = open_session(contexts[0], server_side=False)
            server = open_session(contexts[1], server_side=True)
            shake_hands(client, server)
            client.write(b"%d" % number, bytes(100_000))
            heard.append(carry(client, server)[:1])

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == [b"%d" % number for number in range(4) for _ in range(20)]


def test_the_kind_follows_what_is_possible(
    session_kind: Kind, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    assert type(open_session(contexts[0], server_side=False)) is session_kind
