"""Sender and receiver together: whatever the files and the window, the same bytes arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.receiver import Receiver
from samelog.wire.sender import ReadRange, Seal, Sender

BATCH = 10

Files = list[bytes]
"""One stream: the contents of its files, each of whole batches."""

files = st.lists(st.integers(0, 8), min_size=1, max_size=4).map(
    lambda sizes: [bytes([n]) * size * BATCH for n, size in enumerate(sizes)]
)
streams = st.lists(files, min_size=1, max_size=4)


class Link:
    """A sender and a receiver, joined by calls instead of a connection."""

    def __init__(self, contents: list[Files], window_bytes: int, read_bytes: int) -> None:
        self.contents = contents
        self.window_bytes = window_bytes
        self.read_bytes = read_bytes
        self.sender = Sender(window_bytes=window_bytes, read_bytes=read_bytes)
        self.receiver = Receiver()
        self.received: list[list[bytearray]] = [[bytearray() for _ in each] for each in contents]
        self.told: dict[int, int] = {}

    def resume(self, handle: int) -> None:
        """Start a stream where the receiver holds it."""
        held = self.received[handle]
        full = [
            len(have) == len(want) for have, want in zip(held, self.contents[handle], strict=True)
        ]
        file = next((n for n, done in enumerate(full) if not done), len(held) - 1)
        self.sender.add(handle, file, len(held[file]))
        self.receiver.expect(handle, file, len(held[file]))

    def tell(self, handle: int, file: int, batches: int) -> None:
        """The sender's files have grown to `batches`, or to their end."""
        whole = len(self.contents[handle][file])
        end = max(min(batches * BATCH, whole), self.told.get(handle * 100 + file, 0))
        self.told[handle * 100 + file] = end
        is_last = file + 1 == len(self.contents[handle])
        sealed = end == whole and not is_last
        self.sender.available(handle, file, end, next_file=file + 1 if sealed else None)

    def step(self) -> bool:
        """Ship one thing; whether there was one."""
        match self.sender.next_read():
            case ReadRange(handle, file, byte, limit_bytes):
                size = max(BATCH, limit_bytes // BATCH * BATCH)
                data = self.contents[handle][file][byte : byte + size]
                self.receiver.receive(handle, file, byte, len(data))
                self.received[handle][file] += data
                self.sender.sent(handle, len(data))
            case Seal(handle, file, length, next_file):
                self.receiver.sealed(handle, file, length, next_file)
            case None:
                return False
        assert self.sender.in_flight_bytes < self.window_bytes + max(self.read_bytes, BATCH)
        return True

    def acknowledge(self, handle: int) -> None:
        self.sender.acknowledged(handle, *self.receiver.position(handle))


@given(streams, st.integers(1, 60), st.integers(1, 45), st.data())
def test_everything_arrives_in_order(
    contents: list[Files], window_bytes: int, read_bytes: int, data: st.DataObject
) -> None:
    link = Link(contents, window_bytes, read_bytes)
    handles = st.integers(0, len(contents) - 1)
    for handle in range(len(contents)):
        link.resume(handle)
    for _ in range(data.draw(st.integers(0, 20))):
        handle = data.draw(handles)
        file = data.draw(st.integers(0, len(contents[handle]) - 1))
        link.tell(handle, file, data.draw(st.integers(0, 9)))
        link.step()
        link.acknowledge(data.draw(handles))
    finish(link)
    assert link.sender.in_flight_bytes == 0
    assert [[bytes(file) for file in stream] for stream in link.received] == contents


@given(streams, st.integers(1, 60), st.integers(0, 12))
def test_a_new_connection_resumes_where_the_receiver_stands(
    contents: list[Files], window_bytes: int, steps: int
) -> None:
    first = Link(contents, window_bytes, 25)
    for handle, stream in enumerate(contents):
        first.resume(handle)
        for file in range(len(stream)):
            first.tell(handle, file, 9)
    for _ in range(steps):
        first.step()
    second = Link(contents, window_bytes, 25)
    second.received = first.received
    for handle in range(len(contents)):
        second.resume(handle)
    finish(second)
    assert [[bytes(file) for file in stream] for stream in second.received] == contents


def finish(link: Link) -> None:
    """Tell the sender everything, and ship until there is nothing left."""
    for handle, stream in enumerate(link.contents):
        for file in range(len(stream)):
            if (file, 0) >= link.sender.position(handle) or file == link.sender.position(handle)[0]:
                link.tell(handle, file, 9)
    more = True
    while more:
        more = link.step()
        for handle in range(len(link.contents)):
            link.acknowledge(handle)
        more = more or link.sender.next_read() is not None
